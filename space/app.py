"""A page with a tab for every task of a minBERT checkpoint.

python app.py
"""

import math
import os
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
import torch
import transformers
from transformers import AutoConfig, AutoTokenizer

# An exported page brings this package. It registers the classes: no code of a checkpoint is run.
import modeling_minbert  # noqa: F401

TITLE = "minBERT"
ABOUT = "Choose a tab, write your own text or click on an example."
# A folder next to this file, or a Hub id.
MODEL = os.environ.get("MODEL", "model")
NEXT_TO_THIS_FILE = Path(__file__).resolve().parent / MODEL
if NEXT_TO_THIS_FILE.is_dir():
    MODEL = str(NEXT_TO_THIS_FILE)
# Examples of the forms; the page opens with the result of the first one.
TEXTS = [
    ["I loved every minute of this film."],
    ["The plot makes no sense and the jokes are old."],
    ["It is a quiet story about a small town."],
]
PAIRS = [
    ["How do I learn to swim?", "What is the best way to learn swimming?"],
    ["A man is playing a guitar.", "Someone makes music."],
    ["The garden is warm today.", "The train to Paris was late."],
]
NAMES = [["Ada Lovelace lived in London."], ["In 1903 Marie Curie won a prize in Stockholm."]]
PASSAGE = "Ada Lovelace was born in London in 1815. She wrote the first program for a machine."
QUESTIONS = [["Where was Ada born?", PASSAGE], ["What did she write?", PASSAGE]]
CHOICES = [
    ["The bus is late.", "She", "waits at the stop.\nswims to the island.\npaints the ceiling."],
    ["It began to rain.", "What did he do?", "He opened an umbrella.\nHe watered the lawn."],
]
# The blue of minBERT's reports and its shades.
BLUE = gr.themes.Color(
    "#e6f1f8", "#cfe4f1", "#a3cbe4", "#74b1d6", "#3d93c6", "#0067a5",
    "#005a91", "#004d7c", "#003f66", "#003150", "#00243b",
)  # fmt: skip
THEME = gr.themes.Default(
    primary_hue=BLUE,
    secondary_hue=BLUE,
    neutral_hue=gr.themes.colors.gray,
    font=["system-ui", "sans-serif"],
    font_mono=["ui-monospace", "monospace"],
)


def load(auto_class: str) -> Any:
    """Load the checkpoint with an Auto class, in evaluation mode."""
    kind = getattr(transformers, auto_class)
    model = kind.from_pretrained(MODEL, trust_remote_code=False).eval()
    model.set_precision("auto")
    return model


def form(action: str, predict: Any, examples: list[list[str]], output: Any, **boxes: int) -> None:
    """Show text boxes with examples, and the result beside them; below them on a phone.

    Args:
        action: Text of the button.
        predict: Function of the texts.
        examples: Texts of all boxes, by example.
        output: Class of the result.
        **boxes: Lines of each box, by label with underscores.
    """
    with gr.Row():
        with gr.Column():
            inputs = [
                gr.Textbox(text, label=label.replace("_", " "), lines=lines)
                for text, (label, lines) in zip(examples[0], boxes.items(), strict=True)
            ]
            button = gr.Button(action, variant="primary")
        with gr.Column():
            result = output(value=partial(predict, *examples[0]))
    gr.Examples(examples, inputs, result, predict, run_on_click=True, cache_examples=False)
    button.click(predict, inputs, result)


def task_tab(model: Any, name: str) -> None:
    """Show a task of a multi-task model: what it predicts, a form, and the result."""
    task = model.config.task(name)
    is_single = task.num_texts == 1
    texts = "a text" if is_single else "two texts"
    # of most tasks: one or two texts
    action, examples, boxes = "Predict", TEXTS, {"Text": 3}
    if not is_single:
        action, examples, boxes = "Compare", PAIRS, {"First_text": 2, "Second_text": 2}

    def predict(*row: Any, **options: Any) -> Any:
        return model.predict(name, [row if len(row) > 1 else row[0]], **options)[0]

    if task.answers_questions:
        about, action, examples = (
            "Finds the answer to a question in a passage.",
            "Answer",
            QUESTIONS,
        )
        boxes, output = {"Question": 1, "Passage": 5}, partial(gr.Label, label="Answer")

        def show(question: str, passage: str) -> Any:
            found = predict(question, passage)
            return {found["answer"] or "no answer": float(found["score"])}

    elif task.offers_choices:
        about, action, examples = "Chooses one of several choices for a context.", "Choose", CHOICES
        boxes = {"Context": 3, "Question_or_start": 1, "Choices": 4}
        output = partial(gr.Label, label="Probabilities")

        def show(context: str, start: str, lines: str) -> Any:
            choices = [line.strip() for line in lines.splitlines() if line.strip()]
            if len(choices) < 2:
                raise gr.Error("Write at least two choices, one on each line.")
            row = (context, start.strip(), choices) if start.strip() else (context, choices)
            found = predict(*row, top_k=len(choices))
            return {choices[row["index"]]: float(row["score"]) for row in found}

    elif task.is_token_level:
        about, action, examples = "Tags the words of a text.", "Tag", NAMES
        output = partial(gr.HighlightedText, label="Entities")

        def show(text: str) -> Any:
            found = predict(text)
            if "entities" not in found:
                return list(zip(found["words"], found["tags"], strict=True))
            spans = [
                {"entity": entity["label"], "start": entity["start"], "end": entity["end"]}
                for entity in found["entities"]
            ]
            return {"text": text, "entities": spans}

    elif task.predicts_several_scores:
        about = f"Predicts {', '.join(task.targets)} of {texts}."
        output = partial(gr.JSON, label="Scores")

        def show(*row: str) -> Any:
            return {key: round(value, 4) for key, value in predict(*row)["scores"].items()}

    elif task.score_limits is not None:
        low, high = task.score_limits
        about = f"Scores {texts}" + (f" from {low:g} to {high:g}." if high < math.inf else ".")
        output = partial(gr.Number, label="Score")

        def show(*row: str) -> Any:
            return round(predict(*row)["score"], 4)

    else:
        found = {str(row["label"]) for row in predict(*examples[0], top_k=20)}
        # in the order of the task, which matters for grades
        labels = [label for label in task.labels or sorted(found) if label in found]
        about = f"Labels {texts}: {', '.join(labels)}."
        output = partial(gr.Label, label="Probabilities")

        def show(*row: str) -> Any:
            return {str(found["label"]): float(found["score"]) for found in predict(*row, top_k=20)}

    gr.Markdown(about)
    form(action, show, examples, output, **boxes)


def mask_tab(tokenizer: Any) -> None:
    """Show a text with a masked word and predictions for it."""
    model = load("AutoModelForMaskedLM")
    mask = tokenizer.mask_token

    def fill(text: str) -> dict[str, float]:
        inputs = tokenizer(text, return_tensors="pt", truncation=True)
        positions = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero()
        if not len(positions):
            raise gr.Error(f"The text needs one {mask}.")
        with torch.no_grad():
            scores = model(**inputs).logits[0, positions[0, 0]].softmax(-1)
        best = scores.topk(min(5, len(scores)))
        tokens = tokenizer.convert_ids_to_tokens(best.indices.tolist())
        return dict(zip(tokens, best.values.tolist(), strict=True))

    gr.Markdown(f"Predicts the word behind {mask}.")
    texts = [[f"The garden is {mask} today."], [f"We went to the {mask} by train."]]
    form("Fill", fill, texts, partial(gr.Label, label="Words"), Text=3)


def next_sentence_tab(tokenizer: Any) -> None:
    """Show two texts and whether the second follows the first."""
    model = load("AutoModelForNextSentencePrediction")

    def follows(first: str, second: str) -> dict[str, float]:
        with torch.no_grad():
            inputs = tokenizer(first, second, return_tensors="pt", truncation=True)
            scores = model(**inputs).logits[0].softmax(-1).tolist()
        return dict(zip(("follows", "is random"), scores, strict=True))

    output = partial(gr.Label, label="The second text")
    form("Compare", follows, PAIRS, output, First_text=2, Second_text=2)


def embedding_tab(tokenizer: Any) -> None:
    """Show two texts and the cosine of their vectors."""
    encoder = load("AutoModel")
    encoder.tokenizer = tokenizer

    def compare(first: str, second: str) -> float:
        vectors = encoder.encode([first, second])
        return round(torch.cosine_similarity(vectors[0], vectors[1], dim=0).item(), 4)

    gr.Markdown("Compares two texts by the cosine of their vectors, from -1 to 1.")
    output = partial(gr.Number, label="Cosine")
    form("Compare", compare, PAIRS, output, First_text=2, Second_text=2)


# Tabs of the heads that BERT is pre-trained with, by Auto class.
PRETRAINING: dict[str, dict[str, Any]] = {
    "AutoModelForMaskedLM": {"Masked word": mask_tab},
    "AutoModelForNextSentencePrediction": {"Next sentence": next_sentence_tab},
    "AutoModelForPreTraining": {"Masked word": mask_tab, "Next sentence": next_sentence_tab},
}


def build() -> gr.Blocks:
    """Build the page: a tab for every task, for the heads of pre-training, and for the vectors."""
    config = AutoConfig.from_pretrained(MODEL, trust_remote_code=False)
    tokenizer = AutoTokenizer.from_pretrained(MODEL, config=config, trust_remote_code=False)
    tokenizer.model_max_length = config.max_position_embeddings
    tabs: dict[str, Any] = {}
    if config.architectures[0] == "MinBertForMultiTask":
        model = load("AutoModelForSequenceClassification")
        tasks = {name: config.task(name) for name in config.tasks}
        for name, task in tasks.items():
            if not task.is_pretraining:
                tabs[name] = lambda _, name=name: task_tab(model, name)
        for task in tasks.values():
            tabs |= PRETRAINING[task.auto_class] if task.is_pretraining else {}
    else:
        for auto_class, path in config.auto_map.items():
            if path.rpartition(".")[2] == config.architectures[0]:
                tabs |= PRETRAINING.get(auto_class, {})
    with gr.Blocks(title=TITLE) as page:
        gr.Markdown(f"# {TITLE}\n{ABOUT}")
        for name, fill in {**tabs, "Embeddings": embedding_tab}.items():
            with gr.Tab(name):
                fill(tokenizer)
    return page


if __name__ == "__main__":
    build().launch(theme=THEME, footer_links=[])
