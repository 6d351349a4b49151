"""Notes on the data of a task: rare labels, and what is longer than a row."""

import numpy as np
import pytest

from datasets_scripts import Encoding, TaskData, load_task, train_wordpiece
from minbert_cli.data_notes import describe_data, describe_prompts
from modeling_minbert import TASKS, MinBertConfig
from tests import small_run

OWN = {"problem_type": "classification", "text_columns": ["text"], "label_column": "label"}
WORDS = [f"w{number}" for number in range(30)]


@pytest.fixture(scope="module")
def tokenizer():
    """Return a tokenizer of which every word is a token."""
    return train_wordpiece([" ".join(WORDS)] * 9, 200)


def describe(folder, tokenizer, rows, header, keys, weights=None, **options):
    small_run.write_tsv(folder / "train.tsv", header, rows)
    files = dict.fromkeys(("train_file", "validation_file"), str(folder / "train.tsv"))
    return describe_task(
        load_task(TaskData.from_recipe("own", files | keys)), tokenizer, weights, **options
    )


def describe_task(task, tokenizer, weights=None, **options):
    weights = weights or {}
    options = {"pair_encoding": None, "truncation": "head", "max_length": 12} | options
    facts = {"data_keys": None, "max_length": options["max_length"]}
    head = TASKS[task.problem_type].complete(weights, task.head_facts() | facts)
    described = MinBertConfig(tasks={"own": head}).task("own")
    encoding = Encoding(**options)
    encoded = task.encode(tokenizer, encoding)
    return describe_data(task, described, encoded, tokenizer, encoding, weights)


LABELS = {"problem_type": "multi_label_classification"}
OUTPUTS = {"problem_type": "multi_output_classification", "label_column": None}
OUTPUTS["label_columns"] = ["label"]
RARE = "22 training rows have the label 'a' for every one with 'c'"


@pytest.mark.parametrize(
    ("keys", "counts", "weights", "expected"),
    [
        ({}, (22, 2, 1), {}, f"warning: {RARE}; give class_weights: balanced, and judge by"),
        ({}, (22, 2, 1), {"class_weights": [1, 5, 2.5]}, "class_weights: 1 for 'a', 5 for 'b', 2."),
        ({}, (20, 3, 2), {}, None),
        (LABELS, (22, 2, 1), {}, f"warning: {RARE}; give pos_weight: balanced, and judge by macr"),
        (LABELS, (20, 3, 2), {}, None),
        (OUTPUTS, (22, 2, 1), {}, f"warning: {RARE} in column 'label'; judge by macro_f1"),
        ({"labels": [*"abc"]}, (3, 3, 0), {}, "warning: no training row has the label 'c', which"),
    ],
)
def test_rare_labels_and_weights_are_reported(tmp_path, tokenizer, keys, counts, weights, expected):
    sizes = dict(zip("abc", counts, strict=True))
    rows = [(f"w{n} w1", label) for label, size in sizes.items() for n in range(size)]

    notes = describe(tmp_path, tokenizer, rows, ("text", "label"), OWN | keys, weights)

    assert len(notes) == (expected is not None)
    assert all(note.startswith(expected) for note in notes)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ((1, 2, 4, 5), None),
        ((-1, 0, 1, 2), "the label '-1' of column 'label' may be no label, but"),
        ((-1, 1), None),
    ],
)
def test_negative_labels(tmp_path, tokenizer, labels, expected):
    rows = [(f"w{n} w1", label) for n, label in enumerate(labels)]

    notes = describe(tmp_path, tokenizer, rows, ("text", "label"), OWN)

    assert len(notes) == (expected is not None)
    assert all(note.startswith(f"warning: {expected}") for note in notes)


def test_texts_in_common_and_cut_questions_are_reported(tmp_path, tokenizer):
    header, keys = ("a", "b", "label"), {"problem_type": "paraphrase", "label_column": "label"}
    small_run.write_tsv(tmp_path / "dev.tsv", header, [("w3", "w9", 0), ("w8", "W1", 1)])
    keys |= {"text_columns": ["a", "b"], "validation_file": str(tmp_path / "dev.tsv")}
    pairs = [("w1", "w2", 0), ("w4", "w5", 1)]

    notes = describe(tmp_path, tokenizer, pairs, header, keys, pair_encoding="joint")

    end = "in common with a training row; metrics on new texts may be lower"
    assert notes == [f"1 of 2 validation rows have a text {end}"]
    passage = {"context": "w1 w2", "answers": [{"text": "w2", "answer_start": 3}]}
    rows = [{**passage, "question": "w3 " * count, "id": str(count)} for count in (1, 4, 5, 6)]
    task = small_run.load_rows(tmp_path, "q.jsonl", rows, problem_type="question_answering")
    options = {"max_question_length": 4, "doc_stride": 1}
    notes = describe_task(task, tokenizer, **options)
    assert notes == [
        f"4 of 4 validation rows have their passage {end}",
        "warning: max_question_length=4 cuts 50 % of the training questions; raise it",
    ]


def test_labels_that_may_be_one_or_none_are_reported(tmp_path, tokenizer):
    names = ["1", "+1", "01", "Pos", "pos", "nan", "label", "neg"]
    rows = [(f"w{n} w1", name) for n, name in enumerate(names)]

    notes = describe(tmp_path, tokenizer, rows, ("text", "label"), OWN)

    assert [note.removeprefix("warning: ").partition(";")[0] for note in notes] == [
        *(
            f"the label '{name}' of column 'label' may be no label, but a missing value or a line "
            "of a header"
            for name in ("label", "nan")
        ),
        "'+1', '01', '1' are different labels of column 'label'",
        "'Pos', 'pos' are different labels of column 'label'",
    ]
    chosen = OWN | {"labels": sorted(names)}
    assert describe(tmp_path, tokenizer, rows, ("text", "label"), chosen) == []


def test_texts_that_may_be_missing_are_reported(tmp_path, tokenizer):
    rows = [(text, n % 2) for n, text in enumerate(["w1", "NaN", "w2 nan", "null", "NaN", "w3"])]

    notes = describe(tmp_path, tokenizer, rows, ("text", "label"), OWN)

    warning = "warning: 50 % of the training texts are 'NaN', 'null', which may be missing values"
    assert warning + "; if so, delete the rows" in notes


def test_prompts_that_rows_lack_are_reported(tmp_path):
    rows = [(f"query: {text}", text) for text in WORDS]  # documents have no prompt
    small_run.write_tsv(tmp_path / "train.tsv", ("a", "b"), rows)
    files = dict.fromkeys(("train_file", "validation_file"), str(tmp_path / "train.tsv"))
    keys = {"problem_type": "contrastive", **files}

    found = [
        describe_prompts(
            load_task(TaskData.from_recipe("own", keys | {"text_columns": columns})),
            {"query": "query: ", "document": ""},
        )
        for columns in (["a", "b"], ["b"])
    ]

    assert found[0] == []
    assert found[1][0].startswith("warning: the checkpoint has prompts (query: 'query: '), but")


def test_labels_of_each_output_are_compared(tmp_path, tokenizer):
    keys = {"problem_type": "multi_output_classification", "text_columns": ["text"]}
    keys["label_columns"] = ["size", "tone"]
    rows = [(f"w{n} w1", "ab"[n % 2], ["Up", "up", "down"][n % 3]) for n in range(6)]

    notes = describe(tmp_path, tokenizer, rows, ("text", "size", "tone"), keys)

    assert len(notes) == 1
    assert notes[0].startswith("warning: 'Up', 'up' are different labels of column 'tone'; if")


@pytest.mark.parametrize("truncation", ["head", "head_tail"])
@pytest.mark.parametrize("count", [40, 2500])
def test_the_share_of_cut_tokens_is_that_of_the_lengths(tmp_path, tokenizer, truncation, count):
    lengths = np.random.default_rng(0).integers(1, 30, count)
    rows = [(" ".join(WORDS[:length]), n % 2) for n, length in enumerate(lengths)]
    chosen = lengths[:: -(-count // 1000)]  # up to 1000, evenly spread

    notes = describe(tmp_path, tokenizer, rows, ("text", "label"), OWN, truncation=truncation)

    cut = np.maximum(chosen + 2 - 12, 0).sum() / (chosen + 2).sum()
    assert notes == [
        f"tokens of the training rows cut by max_length=12: {100 * cut:.1f} %; raise max_length, "
        "or choose truncation"
    ]
