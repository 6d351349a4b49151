"""A page with a tab for every head of a minBERT checkpoint.

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


def find_class(config: Any) -> str:
    """Return the Auto class of the saved model."""
    saved = config.architectures[0]
    for auto_class, path in config.auto_map.items():
        if path.rpartition(".")[2] == saved:
            return auto_class
    raise ValueError(f"{MODEL} is a {saved}, which has no Auto class")


def to_label(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Convert predictions for `gr.Label`."""
    return {str(row["label"]): float(row["score"]) for row in rows}


def to_entities(text: str, rows: list[dict[str, Any]], key: str) -> dict[str, Any]:
    """Convert entities for `gr.HighlightedText`."""
    spans = [{"entity": row[key], "start": row["start"], "end": row["end"]} for row in rows]
    return {"text": text, "entities": spans}


def to_tags(text: str, found: dict[str, Any]) -> Any:
    """Convert tags for `gr.HighlightedText`: entities, or the tag of each word."""
    if "entities" in found:
        return to_entities(text, found["entities"], "label")
    return list(zip(found["words"], found["tags"], strict=True))


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


def text_form(predict: Any, num_texts: int, output: Any) -> None:
    """Show one or two texts and the prediction for them."""
    if num_texts == 1:
        form("Predict", predict, TEXTS, output, Text=3)
    else:
        form("Compare", predict, PAIRS, output, First_text=2, Second_text=2)


def score_form(predict: Any, num_texts: int) -> None:
    """Show one or two texts and their score."""

    def score(*texts: str) -> float:
        return round(predict(*texts)["score"], 4)

    text_form(score, num_texts, partial(gr.Number, label="Score"))


def scores_form(predict: Any, num_texts: int) -> None:
    """Show one or two texts and their scores by name."""

    def scores(*texts: str) -> dict[str, float]:
        return {name: round(value, 4) for name, value in predict(*texts)["scores"].items()}

    text_form(scores, num_texts, partial(gr.JSON, label="Scores"))


def tag_form(tag: Any) -> None:
    """Show a text with its entities."""
    form("Tag", tag, NAMES, partial(gr.HighlightedText, label="Entities"), Text=3)


def answer_form(find: Any) -> None:
    """Show a passage, a question and the answer span."""

    def answer(question: str, passage: str) -> dict[str, float]:
        found = find(question, passage)
        return {found["answer"] or "no answer": float(found["score"])}

    form("Answer", answer, QUESTIONS, partial(gr.Label, label="Answer"), Question=1, Passage=5)


def choice_form(choose: Any) -> None:
    """Show a context, a question or the start of every choice, and choices, one on each line."""

    def choose_line(context: str, start: str, lines: str) -> dict[str, float]:
        choices = [line.strip() for line in lines.splitlines() if line.strip()]
        if len(choices) < 2:
            raise gr.Error("Write at least two choices, one on each line.")
        return dict(zip(choices, choose(context, start.strip(), choices), strict=True))

    output = partial(gr.Label, label="Probabilities")
    form("Choose", choose_line, CHOICES, output, Context=3, Question_or_start=1, Choices=4)


def describe(task: Any, predict: Any) -> str:
    """Describe in a sentence what a head predicts."""
    if task.answers_questions:
        return "Finds the answer to a question in a passage."
    if task.offers_choices:
        return "Chooses one of several choices for a context."
    if task.is_token_level:
        return "Tags the words of a text."
    texts = "a text" if task.num_texts == 1 else "two texts"
    if task.predicts_several_scores:
        return f"Predicts {', '.join(task.targets)} of {texts}."
    if task.score_limits is not None:
        low, high = task.score_limits
        return f"Scores {texts}" + (f" from {low:g} to {high:g}." if high < math.inf else ".")
    return f"Labels {texts}: {', '.join(name_labels(task, predict))}."


def name_labels(task: Any, predict: Any) -> list[str]:
    """Name up to twenty labels in their order, which matters for grades."""
    example = TEXTS[0] if task.num_texts == 1 else PAIRS[0]
    given = {str(row["label"]): None for row in predict(*example, top_k=20)}
    return [name for name in task.labels if name in given] if task.labels else sorted(given)


def choose(model: Any, task: str, context: str, start: str, choices: list[str]) -> list[float]:
    """Return the probabilities of choices by a task of a multi-task model."""
    row = (context, start, choices) if start else (context, choices)
    found = model.predict(task, [row], top_k=len(choices))[0]
    return [one["score"] for one in sorted(found, key=lambda one: one["index"])]


def task_tab(model: Any, name: str) -> None:
    """Show a task of a multi-task model."""
    task = model.config.task(name)

    def predict(*texts: str, **options: Any) -> Any:
        return model.predict(name, [texts if task.num_texts == 2 else texts[0]], **options)[0]

    def label(*texts: str) -> dict[str, float]:
        return to_label(predict(*texts, top_k=20))

    gr.Markdown(describe(task, predict))
    if task.answers_questions:
        answer_form(predict)
    elif task.offers_choices:
        choice_form(partial(choose, model, name))
    elif task.is_token_level:
        tag_form(lambda text: to_tags(text, predict(text)))
    elif task.predicts_several_scores:
        scores_form(predict, task.num_texts)
    elif task.score_limits is not None:
        score_form(predict, task.num_texts)
    else:
        text_form(label, task.num_texts, partial(gr.Label, label="Probabilities"))


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

    text_form(follows, 2, partial(gr.Label, label="The second text"))


def text_tab(tokenizer: Any, *, num_texts: int) -> None:
    """Show one or two texts and their class probabilities."""
    model = load("AutoModelForSequenceClassification")
    pipe = transformers.pipeline("text-classification", model, tokenizer=tokenizer)

    def label(text: str, second: str | None = None) -> dict[str, float]:
        return to_label(pipe({"text": text, "text_pair": second}, top_k=20))

    text_form(label, num_texts, partial(gr.Label, label="Probabilities"))


def token_tab(tokenizer: Any) -> None:
    """Show a text with its entities."""
    model = load("AutoModelForTokenClassification")
    pipe = transformers.pipeline(
        "token-classification", model, tokenizer=tokenizer, aggregation_strategy="first"
    )
    tag_form(lambda text: to_entities(text, pipe(text), "entity_group"))


def question_tab(tokenizer: Any) -> None:
    """Show a passage, a question and the answer span."""
    model = load("AutoModelForQuestionAnswering")
    model.tokenizer = tokenizer
    answer_form(model.answer)


def choice_tab(tokenizer: Any) -> None:
    """Show a context, choices and their probabilities."""
    model = load("AutoModelForMultipleChoice")

    def choose(context: str, start: str, choices: list[str]) -> list[float]:
        texts = [f"{start} {choice}".strip() for choice in choices]
        with torch.no_grad():
            inputs = tokenizer(
                [context] * len(texts), texts, return_tensors="pt", padding=True, truncation=True
            )
            logits = model(**{key: value.unsqueeze(0) for key, value in inputs.items()}).logits
        return logits[0].softmax(-1).tolist()

    choice_form(choose)


def embedding_tab(tokenizer: Any) -> None:
    """Show two texts and the cosine of their vectors."""
    encoder = load("AutoModel")
    encoder.tokenizer = tokenizer

    def compare(first: str, second: str) -> float:
        vectors = encoder.encode([first, second])
        return round(torch.cosine_similarity(vectors[0], vectors[1], dim=0).item(), 4)

    gr.Markdown("Compares two texts by the cosine of their vectors, from -1 to 1.")
    text_form(compare, 2, partial(gr.Number, label="Cosine"))


# Auto class -> its tabs
TABS: dict[str, dict[str, Any]] = {
    "AutoModelForMaskedLM": {"Masked word": mask_tab},
    "AutoModelForNextSentencePrediction": {"Next sentence": next_sentence_tab},
    "AutoModelForPreTraining": {"Masked word": mask_tab, "Next sentence": next_sentence_tab},
    "AutoModelForSequenceClassification": {
        "Text": partial(text_tab, num_texts=1),
        "Pair": partial(text_tab, num_texts=2),
    },
    "AutoModelForTokenClassification": {"Tokens": token_tab},
    "AutoModelForQuestionAnswering": {"Question": question_tab},
    "AutoModelForMultipleChoice": {"Choices": choice_tab},
}


def find_tabs(config: Any) -> dict[str, Any]:
    """Return the tabs of a checkpoint: name -> function that fills it, given the tokenizer."""
    auto_class = find_class(config)
    if config.architectures[0] != "MinBertForMultiTask":
        return {**TABS.get(auto_class, {}), "Embeddings": embedding_tab}
    model = load(auto_class)
    tasks = {name: config.task(name) for name in config.tasks}
    tabs: dict[str, Any] = {
        name: lambda _, name=name: task_tab(model, name)
        for name, task in tasks.items()
        if not task.is_pretraining
    }
    for task in tasks.values():
        tabs |= TABS[task.auto_class] if task.is_pretraining else {}
    return {**tabs, "Embeddings": embedding_tab}


def build() -> gr.Blocks:
    """Build the page."""
    config = AutoConfig.from_pretrained(MODEL, trust_remote_code=False)
    tokenizer = AutoTokenizer.from_pretrained(MODEL, config=config, trust_remote_code=False)
    tokenizer.model_max_length = config.max_position_embeddings
    with gr.Blocks(title=TITLE) as page:
        gr.Markdown(f"# {TITLE}\n{ABOUT}")
        for name, fill in find_tabs(config).items():
            with gr.Tab(name):
                fill(tokenizer)
    return page


if __name__ == "__main__":
    build().launch(theme=THEME, footer_links=[])
