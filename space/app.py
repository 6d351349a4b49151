"""A page with a tab for every task of a minBERT checkpoint.

python app.py
"""

import os
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
import torch
import transformers
from transformers import AutoConfig

# An exported page brings this package. It registers the classes: no code of a checkpoint is run.
import modeling_minbert  # noqa: F401

TITLE = "minBERT"
ABOUT = "Choose a tab and write your own text."
# A folder next to this file, or a Hub id.
MODEL = os.environ.get("MODEL", "model")
NEXT_TO_THIS_FILE = Path(__file__).resolve().parent / MODEL
if NEXT_TO_THIS_FILE.is_dir():
    MODEL = str(NEXT_TO_THIS_FILE)

THEME = gr.themes.Default(primary_hue="blue", neutral_hue="gray", font=["system-ui", "sans-serif"])
# Examples: the labels of the boxes and their texts; the page opens with the result.
TEXT = {"Text": "I loved every minute of this film."}
PAIR = {"First text": "How do I learn to swim?", "Second text": "How can one learn swimming?"}
NAMES = {"Text": "In 1903 Marie Curie won a prize in Stockholm."}
PASSAGE = "Ada Lovelace was born in London in 1815. She wrote the first program for a machine."
QUESTION = {"Question": "Where was Ada born?", "Passage": PASSAGE}
CHOICES = {
    "Context": "It began to rain.",
    "Question or start": "What did he do?",
    "Choices": "He opened an umbrella.\nHe watered the lawn.",
}


def load(auto_class: str) -> Any:
    """Load the checkpoint with an Auto class, in evaluation mode."""
    model = getattr(transformers, auto_class).from_pretrained(MODEL, trust_remote_code=False).eval()
    model.set_precision("auto", fixed_weights=True)
    return model


def draw(about: str, example: dict[str, str], predict: Any, output: Any, label: str) -> None:
    """Show boxes for texts, and the result beside them; below them on a phone."""
    gr.Markdown(about)
    with gr.Row():
        with gr.Column():
            inputs = [gr.Textbox(text, label=box, lines=2) for box, text in example.items()]
            button = gr.Button("Predict", variant="primary")
        with gr.Column():
            result = output(value=partial(predict, *example.values()), label=label)
    button.click(predict, inputs, result)


def task_tab(model: Any, name: str) -> None:
    """Show a task of a multi-task model: what it predicts, a form, and the result."""
    task = model.config.task(name)
    several = len(getattr(task, "targets", None) or ()) > 1
    outputs: list[str] = getattr(task, "outputs", None) or []
    texts, example = ("a text", TEXT) if task.num_texts == 1 else ("two texts", PAIR)

    def predict(*row: Any, **options: Any) -> Any:
        return model.predict(name, [row if len(row) > 1 else row[0]], **options)[0]

    def score(*row: str) -> Any:
        values = predict(*row)
        if several:
            return {target: round(value, 4) for target, value in values["scores"].items()}
        return round(values["score"], 4)

    def classify_outputs(*row: str) -> Any:
        return predict(*row)["labels"]

    def classify(*row: str) -> dict[str, float]:
        return {str(label["label"]): float(label["score"]) for label in predict(*row, top_k=20)}

    if task.answers_questions:
        about = "Finds the answer to a question in a passage."
        draw(about, QUESTION, partial(answer, predict), gr.Label, "Answer")
    elif task.offers_choices:
        about = "Chooses one of several choices for a context."
        draw(about, CHOICES, partial(choose, predict), gr.Label, "Probabilities")
    elif task.is_token_level:
        about = "Tags the words of a text."
        draw(about, NAMES, partial(tag, predict), gr.HighlightedText, "Entities")
    elif several:
        about = f"Predicts {', '.join(task.targets)} of {texts}."
        draw(about, example, score, gr.JSON, "Scores")
    elif outputs:
        about = f"Labels {', '.join(outputs)} of {texts}."
        draw(about, example, classify_outputs, gr.JSON, "Labels")
    elif task.hub_type == "regression" or task.is_unlabelled:
        draw(f"Scores {texts}.", example, score, gr.Number, "Score")
    else:
        labels = classify(*example.values())
        # in the order of the task, which matters for grades
        names = [label for label in task.labels or sorted(labels) if label in labels]
        draw(f"Labels {texts}: {', '.join(names)}.", example, classify, gr.Label, "Probabilities")


def answer(predict: Any, question: str, passage: str) -> dict[str, float]:
    """Return the best answer and its score."""
    best = predict(question, passage)
    return {best["answer"] or "no answer": float(best["score"])}


def choose(predict: Any, context: str, start: str, lines: str) -> dict[str, float]:
    """Return the probabilities of choices, one on each line."""
    choices = [line.strip() for line in lines.splitlines() if line.strip()]
    if len(choices) < 2:
        raise gr.Error("Write at least two choices, one on each line.")
    row = (context, start.strip(), choices) if start.strip() else (context, choices)
    ranked = predict(*row, top_k=len(choices))
    return {choices[choice["index"]]: float(choice["score"]) for choice in ranked}


def tag(predict: Any, text: str) -> Any:
    """Return the entities of a text, or its words with their tags."""
    tagged = predict(text)
    if "entities" not in tagged:
        return list(zip(tagged["words"], tagged["tags"], strict=True))
    entities = [
        {"entity": entity["label"], "start": entity["start"], "end": entity["end"]}
        for entity in tagged["entities"]
    ]
    return {"text": text, "entities": entities}


def embedding_tab() -> None:
    """Show two texts and the cosine of their vectors."""
    encoder = load("AutoModel")

    def compare(first: str, second: str) -> float:
        vectors = encoder.encode([first, second])
        return round(torch.cosine_similarity(vectors[0], vectors[1], dim=0).item(), 4)

    about = "Compares two texts by the cosine of their vectors, from -1 to 1."
    draw(about, PAIR, compare, gr.Number, "Cosine")


def build() -> gr.Blocks:
    """Build the page: a tab for every task, and one for the vectors."""
    config = AutoConfig.from_pretrained(MODEL, trust_remote_code=False)
    tabs: dict[str, Any] = {}
    if config.architectures[0] == "MinBertForMultiTask":
        model = load("AutoModelForSequenceClassification")
        for name in config.tasks:
            if not config.task(name).is_pretraining:
                tabs[name] = partial(task_tab, model, name)
    with gr.Blocks(title=TITLE) as page:
        gr.Markdown(f"# {TITLE}\n{ABOUT}")
        for name, fill in {**tabs, "Embeddings": embedding_tab}.items():
            with gr.Tab(name):
                fill()
    return page


if __name__ == "__main__":
    build().launch(theme=THEME, footer_links=[])
