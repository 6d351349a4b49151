"""A small data set for every problem type, with the keys of a task that learns from it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import small_run
from tests.small_run import Row

SPLITS = {"train": "train_file", "dev": "validation_file"}
COLUMNS = ("id", "a", "b", "same", "mood")


@dataclass(frozen=True)
class Example:
    """A problem type as its user meets it.

    Args:
        write: Writes the files of a folder; returns the keys of the task.
        rows: Rows for `predict`; None for a type that predicts nothing of whole texts.
    """

    write: Callable[[Path], dict[str, Any]]
    rows: list[Any] | None = None


def pairs_of(**keys: Any) -> Callable[[Path], dict[str, Any]]:
    """Return a writer of tab-separated pairs, with these keys of the task."""

    def write(folder: Path) -> dict[str, Any]:
        files = {}
        for split, key in SPLITS.items():
            rows = [
                (name, first, second, int(same), "good" if good else "bad")
                for name, first, second, same, good in small_run.make_rows(split)
            ]
            small_run.write_tsv(folder / f"rows-{split}.tsv", COLUMNS, rows)
            files[key] = str(folder / f"rows-{split}.tsv")
        return {**keys, **files}

    return write


def write_splits(
    folder: Path, name: str, make: Callable[[int, Row], dict[str, Any]]
) -> dict[str, Any]:
    """Write JSON lines, made of each row and its place; returns the files' keys."""
    return {
        key: small_run.write_jsonl(
            folder / f"{name}-{split}.jsonl",
            [make(place, row) for place, row in enumerate(small_run.make_rows(split))],
        )
        for split, key in SPLITS.items()
    }


def write_tags(folder: Path) -> dict[str, Any]:
    """Write sentences with a tag for the adjective."""

    def make(_: int, row: Row) -> dict[str, Any]:
        tags = ["O", "B-THING", "O", "B-GOOD" if row.good else "B-BAD"]
        return {"tokens": row.text.split(), "tags": tags}

    return write_splits(folder, "tags", make)


def write_questions(folder: Path) -> dict[str, Any]:
    """Write questions whose answer is the last word of the first sentence."""

    def make(_: int, row: Row) -> dict[str, Any]:
        answer = row.text.split()[-1]
        answers = {"text": [answer], "answer_start": [row.text.rindex(answer)]}
        context = f"{row.text} and {row.other}"
        return {"id": row.id, "question": "how is it", "context": context, "answers": answers}

    files = write_splits(folder, "questions", make)
    return files | {"max_length": 17, "max_question_length": 5, "doc_stride": 4}


def write_corpus(folder: Path) -> dict[str, Any]:
    """Write documents of a few sentences."""
    files = {}
    for split, key in SPLITS.items():
        rows = list(small_run.make_rows(split))
        documents = [f"{first}. {second}. {first}." for _, first, second, *_ in rows]
        path = folder / f"text-{split}.txt"
        path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
        files[key] = str(path)
    return {"corpus": {"own": files}}


def write_labels(folder: Path) -> dict[str, Any]:
    """Write texts with any of three labels: a kind of thing, and how it is."""

    def make(_: int, row: Row) -> dict[str, Any]:
        labels = ["good"] * row.good + ["same"] * row.same + ["outside"] * ("garden" in row.text)
        return {"id": row.id, "a": row.text, "topics": labels}

    files = write_splits(folder, "labels", make)
    return {"text_columns": ["a"], "label_column": "topics", **files}


def write_aspects(folder: Path) -> dict[str, Any]:
    """Write texts with two classes, the second of which is missing in some rows."""

    def make(place: int, row: Row) -> dict[str, Any]:
        grade = str(row.good + (row.good == row.same)) if place % 4 else None
        return {"id": row.id, "a": row.text, "mood": "good" if row.good else "bad", "grade": grade}

    files = write_splits(folder, "aspects", make)
    return {"text_columns": ["a"], "label_columns": ["mood", "grade"], **files}


def write_numbers(folder: Path) -> dict[str, Any]:
    """Write texts with two numbers, the second of which is missing in some rows."""

    def make(place: int, row: Row) -> dict[str, Any]:
        age = 3 + row.same if place % 4 else None
        return {"id": row.id, "a": row.text, "price": 900 + 150 * row.good, "age": age}

    files = write_splits(folder, "numbers", make)
    return {"text_columns": ["a"], "label_columns": ["price", "age"], **files}


TEXT = ["the river is fine"]
PAIR = [("the river is fine", "this river was dull")]
EXAMPLES = {
    "classification": Example(pairs_of(text_columns=["a"], label_column="mood"), TEXT),
    "multi_label_classification": Example(write_labels, TEXT),
    "multi_output_classification": Example(write_aspects, TEXT),
    "paraphrase": Example(pairs_of(text_columns=["a", "b"], label_column="same"), PAIR),
    "similarity": Example(
        pairs_of(text_columns=["a", "b"], label_column="same", score_range=[0, 1]), PAIR
    ),
    "regression": Example(write_numbers, TEXT),
    "contrastive": Example(pairs_of(text_columns=["a", "b"]), PAIR),
    "token_classification": Example(write_tags, TEXT),
    "question_answering": Example(write_questions, [("how is it", "the river is fine and warm")]),
    "masked_lm": Example(write_corpus),
    "next_sentence": Example(write_corpus),
    "pretraining": Example(write_corpus),
}
