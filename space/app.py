"""A page with a tab for every head of a minBERT checkpoint.

python app.py
"""

import os
from functools import partial
from typing import Any

import gradio as gr
import torch
import transformers
from transformers import AutoConfig, AutoTokenizer

# A folder next to this file, or a Hub id.
MODEL = os.environ.get("MODEL", "model")
EMBEDDED = ["mean", "cls", "max", "pooler"]
FIRST, SECOND = "The garden is warm today.", "It is not cold in the garden."
ABOUT_ADA = "Ada Lovelace lived in London."
# Outputs are shown below the button.
Number, Label = (partial(output, render=False) for output in (gr.Number, gr.Label))


def load(auto_class: str) -> Any:
    """Load the checkpoint with an Auto class, in evaluation mode."""
    kind = getattr(transformers, auto_class)
    return kind.from_pretrained(MODEL, trust_remote_code=True).eval()


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


def add_button(action: str, predict: Any, inputs: list[Any], *outputs: Any) -> None:
    """Show a button, and below it the outputs that it computes."""
    button = gr.Button(action, variant="primary")
    button.click(predict, inputs, [output.render() for output in outputs])


def pair_boxes() -> list[Any]:
    """Show two texts."""
    return [gr.Textbox(FIRST, label="First text"), gr.Textbox(SECOND, label="Second text")]


def text_form(predict: Any, num_texts: int, output: Any) -> None:
    """Show one or two texts and the prediction for them."""
    if num_texts == 1:
        add_button("Predict", predict, [gr.Textbox(FIRST, label="Text", lines=3)], output)
    else:
        add_button("Compare", predict, pair_boxes(), output)


def tag_form(tag: Any) -> None:
    """Show a text with its entities."""
    text = gr.Textbox(ABOUT_ADA, label="Text", lines=3)
    add_button("Tag", tag, [text], gr.HighlightedText(label="Entities", render=False))


def answer_form(find: Any) -> None:
    """Show a passage, a question and the answer span."""

    def answer(question: str, passage: str) -> tuple[str, float]:
        found = find(question, passage)
        return found["answer"], round(found["score"], 4)

    question = gr.Textbox("Where did Ada live?", label="Question")
    passage = gr.Textbox(ABOUT_ADA, label="Passage", lines=5)
    outputs = (gr.Textbox(label="Answer", render=False), Number(label="Probability"))
    add_button("Answer", answer, [question, passage], *outputs)


def task_tab(model: Any, name: str) -> None:
    """Show a task of a multi-task model."""
    task = model.config.task(name)

    def predict(*texts: str, **options: Any) -> Any:
        return model.predict(name, [texts if task.num_texts == 2 else texts[0]], **options)[0]

    def label(*texts: str) -> dict[str, float]:
        return to_label(predict(*texts, top_k=20))

    def score(*texts: str) -> float:
        return round(predict(*texts)["score"], 4)

    if task.answers_questions:
        answer_form(predict)
    elif task.is_token_level:
        tag_form(lambda text: to_tags(text, predict(text)))
    elif task.score_limits is not None:
        low, high = task.score_limits
        text_form(score, task.num_texts, Number(label=f"Score, {low:g} to {high:g}"))
    else:
        text_form(label, task.num_texts, Label(label="Probabilities"))


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

    text = gr.Textbox(f"The garden is {mask} today.", label=f"Text with one {mask}", lines=3)
    add_button("Fill", fill, [text], Label(label="Words"))


def next_sentence_tab(tokenizer: Any) -> None:
    """Show two texts and whether the second follows the first."""
    model = load("AutoModelForNextSentencePrediction")

    def follows(first: str, second: str) -> dict[str, float]:
        with torch.no_grad():
            inputs = tokenizer(first, second, return_tensors="pt", truncation=True)
            scores = model(**inputs).logits[0].softmax(-1).tolist()
        return dict(zip(("follows", "is random"), scores, strict=True))

    text_form(follows, 2, Label(label="The second text"))


def text_tab(tokenizer: Any, *, num_texts: int) -> None:
    """Show one or two texts and their class probabilities."""
    model = load("AutoModelForSequenceClassification")
    pipe = transformers.pipeline("text-classification", model, tokenizer=tokenizer)

    def label(text: str, second: str | None = None) -> dict[str, float]:
        return to_label(pipe({"text": text, "text_pair": second}, top_k=20))

    text_form(label, num_texts, Label(label="Probabilities"))


def token_tab(tokenizer: Any) -> None:
    """Show a text with its entities."""
    model = load("AutoModelForTokenClassification")
    pipe = transformers.pipeline(
        "token-classification", model, tokenizer=tokenizer, aggregation_strategy="simple"
    )
    tag_form(lambda text: to_entities(text, pipe(text), "entity_group"))


def question_tab(tokenizer: Any) -> None:
    """Show a passage, a question and the answer span."""
    model = load("AutoModelForQuestionAnswering")
    model.tokenizer = tokenizer
    answer_form(model.answer)


def embedding_tab(tokenizer: Any) -> None:
    """Show two texts and the cosine of their vectors."""
    encoder = load("AutoModel")
    encoder.tokenizer = tokenizer

    def compare(first: str, second: str, pooling: str) -> float:
        vectors = encoder.encode([first, second], pooling=pooling)
        return round(torch.cosine_similarity(vectors[0], vectors[1], dim=0).item(), 4)

    inputs = [*pair_boxes(), gr.Radio(EMBEDDED, value=EMBEDDED[0], label="Pooling")]
    add_button("Compare", compare, inputs, Number(label="Cosine, -1 to 1"))


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
    config = AutoConfig.from_pretrained(MODEL, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(MODEL, trust_remote_code=True)
    tokenizer.model_max_length = config.max_position_embeddings
    with gr.Blocks(title="minBERT") as page:
        gr.Markdown(f"# minBERT\nA tab for every head of `{MODEL}`.")
        for name, fill in find_tabs(config).items():
            with gr.Tab(name):
                fill(tokenizer)
    return page


if __name__ == "__main__":
    build().launch()
