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
EMBEDDED = ("mean", "cls", "max", "pooler")
FIRST, SECOND = "The garden is warm today.", "It is not cold in the garden."


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


def sentence_tab(predict: Any) -> None:
    """Show a text and its label probabilities."""
    text = gr.Textbox(FIRST, label="Text", lines=3)
    button = gr.Button("Predict", variant="primary")
    button.click(predict, text, gr.Label(label="Probabilities"))


def pair_tab(predict: Any, output: Any) -> None:
    """Show two texts and the prediction for them."""
    first, second = gr.Textbox(FIRST, label="First text"), gr.Textbox(SECOND, label="Second text")
    button = gr.Button("Compare", variant="primary")
    button.click(predict, [first, second], output.render())


def tag_tab(tag: Any) -> None:
    """Show a text with its entities."""
    text = gr.Textbox("Ada Lovelace lived in London.", label="Text", lines=3)
    button = gr.Button("Tag", variant="primary")
    button.click(tag, text, gr.HighlightedText(label="Entities"))


def answer_tab(find: Any) -> None:
    """Show a passage, a question and the answer span."""

    def answer(question: str, passage: str) -> tuple[str, float]:
        found = find(question, passage)
        return found["answer"], round(found["score"], 4)

    question = gr.Textbox("Where did Ada live?", label="Question")
    passage = gr.Textbox("Ada Lovelace lived in London.", label="Passage", lines=5)
    outputs = [gr.Textbox(label="Answer"), gr.Number(label="Probability")]
    gr.Button("Answer", variant="primary").click(answer, [question, passage], outputs)


def task_tab(model: Any, name: str) -> None:
    """Show a task of a multi-task model."""
    task = model.config.task(name)
    if task.problem_type in TOKEN_TABS:
        TOKEN_TABS[task.problem_type](model, name)
        return

    def label(*texts: str) -> dict[str, float]:
        row = texts if task.num_texts == 2 else texts[0]
        return to_label(model.predict(name, [row], top_k=20)[0])

    def score(*texts: str) -> float:
        return round(model.predict(name, [texts])[0]["score"], 4)

    if task.score_limits is not None:
        low, high = task.score_limits
        pair_tab(score, gr.Number(label=f"Score, {low:g} to {high:g}", render=False))
    elif task.num_texts == 2:
        pair_tab(label, gr.Label(label="Probabilities", render=False))
    else:
        sentence_tab(label)


def tagging_task_tab(model: Any, name: str) -> None:
    """Show a tagging task: entities, or the tag of each word."""

    def tag(text: str) -> Any:
        (found,) = model.predict(name, [text])
        if "entities" in found:
            return to_entities(text, found["entities"], "label")
        return list(zip(found["words"], found["tags"], strict=True))

    tag_tab(tag)


def question_task_tab(model: Any, name: str) -> None:
    """Show a question answering task."""
    answer_tab(lambda question, passage: model.predict(name, [(question, passage)])[0])


# Problem type of a token-level task -> its tab
TOKEN_TABS: dict[str, Any] = {
    "token_classification": tagging_task_tab,
    "question_answering": question_task_tab,
}


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
    gr.Button("Fill", variant="primary").click(fill, text, gr.Label(label="Words"))


def next_sentence_tab(tokenizer: Any) -> None:
    """Show two texts and whether the second follows the first."""
    model = load("AutoModelForNextSentencePrediction")

    def follows(first: str, second: str) -> dict[str, float]:
        with torch.no_grad():
            inputs = tokenizer(first, second, return_tensors="pt", truncation=True)
            scores = model(**inputs).logits[0].softmax(-1).tolist()
        return dict(zip(("follows", "is random"), scores, strict=True))

    pair_tab(follows, gr.Label(label="The second text", render=False))


def text_tab(tokenizer: Any, *, pair: bool = False) -> None:
    """Show one or two texts and their class probabilities."""
    model = load("AutoModelForSequenceClassification")
    pipe = transformers.pipeline("text-classification", model, tokenizer=tokenizer)

    def label(text: str, second: str | None = None) -> dict[str, float]:
        return to_label(pipe({"text": text, "text_pair": second} if pair else text, top_k=20))

    if pair:
        pair_tab(label, gr.Label(label="Probabilities", render=False))
    else:
        sentence_tab(label)


def token_tab(tokenizer: Any) -> None:
    """Show a text with its entities."""
    model = load("AutoModelForTokenClassification")
    pipe = transformers.pipeline(
        "token-classification", model, tokenizer=tokenizer, aggregation_strategy="simple"
    )
    tag_tab(lambda text: to_entities(text, pipe(text), "entity_group"))


def question_tab(tokenizer: Any) -> None:
    """Show a passage, a question and the answer span."""
    model = load("AutoModelForQuestionAnswering")
    model.tokenizer = tokenizer
    answer_tab(model.answer)


def embedding_tab(tokenizer: Any) -> None:
    """Show two texts and the cosine of their vectors."""
    encoder = load("AutoModel")

    def compare(first: str, second: str, pooling: str) -> float:
        inputs = tokenizer([first, second], return_tensors="pt", padding=True, truncation=True)
        with torch.no_grad():
            outputs = encoder(**inputs)
        hidden, mask = outputs.last_hidden_state, inputs["attention_mask"].unsqueeze(-1)
        vectors = {
            "mean": lambda: (hidden * mask).sum(1) / mask.sum(1),
            "cls": lambda: hidden[:, 0],
            "max": lambda: hidden.masked_fill(mask == 0, -torch.inf).amax(1),
            "pooler": lambda: outputs.pooler_output,
        }[pooling]()
        return round(torch.cosine_similarity(vectors[0], vectors[1], dim=0).item(), 4)

    first, second = gr.Textbox(FIRST, label="First text"), gr.Textbox(SECOND, label="Second text")
    pooling = gr.Radio(list(EMBEDDED), value=EMBEDDED[0], label="Pooling")
    button = gr.Button("Compare", variant="primary")
    button.click(compare, [first, second, pooling], gr.Number(label="Cosine, -1 to 1"))


# Auto class -> its tabs
TABS: dict[str, dict[str, Any]] = {
    "AutoModelForMaskedLM": {"Masked word": mask_tab},
    "AutoModelForNextSentencePrediction": {"Next sentence": next_sentence_tab},
    "AutoModelForPreTraining": {"Masked word": mask_tab, "Next sentence": next_sentence_tab},
    "AutoModelForSequenceClassification": {"Text": text_tab, "Pair": partial(text_tab, pair=True)},
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
    if any(task.predicts_masked_tokens for task in tasks.values()):
        tabs["Masked word"] = mask_tab
    if any(task.predicts_next_sentence for task in tasks.values()):
        tabs["Next sentence"] = next_sentence_tab
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
