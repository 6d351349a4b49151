"""The contract of the formats: every problem type loads, describes, encodes and scores its rows."""

import datasets
import pytest

from datasets_scripts import Encoding, TaskData, load_task, train_wordpiece
from tests.small_run import load_rows, write_hub, write_jsonl

TEXT = "The mill stood by the river."
QUESTION = {
    "id": "q",
    "question": "Where?",
    "context": TEXT,
    "answers": {"text": ["the river"], "answer_start": [18]},
}
PAIR = {"a": TEXT, "b": "Where?"}
# by problem type: keys of a recipe, rows, options of the encoding
TASKS = {
    "classification": (
        {"text_columns": "a", "label_column": "y"},
        [{**PAIR, "y": "up"}, {**PAIR, "y": "down"}, {**PAIR, "y": "up"}],
        {"pair_encoding": None},
    ),
    "multi_label_classification": (
        {"text_columns": "a", "label_column": "y"},
        [{**PAIR, "y": ["up", "far"]}, {**PAIR, "y": []}],
        {"pair_encoding": None},
    ),
    "paraphrase": (
        {"text_columns": ["a", "b"], "label_column": "y"},
        [{**PAIR, "y": 1}, {**PAIR, "y": 0}],
        {"pair_encoding": "joint", "truncation": "tail"},
    ),
    "similarity": (
        {"text_columns": ["a", "b"], "label_column": "y", "score_range": [0, 5]},
        [{**PAIR, "y": 2.5}],
        {"pair_encoding": "separate"},
    ),
    "regression": (
        {"text_columns": "a", "label_columns": ["y", "z"]},
        [{**PAIR, "y": 2.5, "z": -3}, {**PAIR, "y": 0.5, "z": None}, {**PAIR, "z": 5}],
        {"pair_encoding": None},
    ),
    "multi_output_classification": (
        {"text_columns": "a", "label_columns": ["y", "z"]},
        [{**PAIR, "y": "up", "z": 1}, {**PAIR, "y": "low", "z": None}, {**PAIR, "z": 0}],
        {"pair_encoding": None},
    ),
    "contrastive": ({"text_columns": ["a", "b"]}, [PAIR], {"pair_encoding": "separate"}),
    "token_classification": ({}, [{"tokens": TEXT.split(), "tags": [*"OABCAB"]}], {}),
    "question_answering": (
        {},
        [QUESTION, {**QUESTION, "id": "r", "answers": {"text": [], "answer_start": []}}],
        {"max_question_length": None, "doc_stride": 8},
    ),
}
FACTS = {
    "classification": {"labels": ("down", "up"), "class_counts": [1, 2]},
    "multi_label_classification": {"labels": ("far", "up"), "class_counts": [1, 1]},
    "paraphrase": {"num_texts": 2, "class_counts": [1, 1]},
    "similarity": {"num_texts": 2, "score_range": (0.0, 5.0)},
    "regression": {"targets": ("y", "z"), "mean": [1.5, 1.0], "std": [1.0, 4.0]},
    "multi_output_classification": {"outputs": ("y", "z"), "classes": [["low", "up"], ["0", "1"]]},
    "contrastive": {"num_texts": 2},
    "token_classification": {
        "labels": ("O", "A", "B", "C"),
        "class_counts": [1, 2, 2, 1],
        "sentences": [["The", "mill", "stood", "by", "the", "river."]],
        "scheme": None,
    },
    "question_answering": {"num_texts": 2, "has_unanswerable": True},
}


def load(folder, problem_type, rows=None, **changes):
    keys, known, _ = TASKS[problem_type]
    keys = {"problem_type": problem_type, **keys, **changes}
    return load_rows(folder, "rows.jsonl", rows or known, **keys)


@pytest.mark.parametrize("problem_type", TASKS)
def test_a_task_of_every_type_can_be_used_without_knowing_it(tmp_path, problem_type):
    task = load(tmp_path, problem_type)
    none = {"labels": None, "score_range": None, "num_texts": 1, "class_counts": None}

    assert task.problem_type == problem_type
    none |= {"num_rows": len(task.splits["train"]), "has_unanswerable": False}
    assert task.head_facts() == none | FACTS[problem_type]
    assert next(task.texts()) in (TEXT, "Where?")
    tokenizer = train_wordpiece(list(task.texts()) * 5, 60)
    encoded = task.encode(tokenizer, Encoding(80, **TASKS[problem_type][2]))
    assert encoded.keys() == {"train", "validation"}
    columns = {"id", "input_ids", "token_type_ids", "length"}
    labels = set() if problem_type == "contrastive" else {"labels"}
    assert columns | labels <= set(encoded["train"].column_names)


@pytest.mark.parametrize(
    ("problem_type", "changes", "message"),
    [
        ("classification", {"scheme": "plain"}, "classification tasks have no scheme; remove it"),
        ("multi_label_classification", {"label_columns": ["y"]}, "give either label_column"),
        (
            "multi_label_classification",
            {"label_column": None, "label_columns": ["y", "z"], "labels": ["y", "z"]},
            r"labels=\('y', 'z'\) has no effect with label_columns; remove one",
        ),
        (
            "multi_label_classification",
            {"label_column": None, "label_columns": ["y", "z"], "label_separator": ";"},
            "label_separator=';' has no effect with label_columns; remove one",
        ),
        (
            "token_classification",
            {"id_column": "n"},
            "token_classification tasks have no id_column",
        ),
        ("regression", {"label_columns": None}, "give either label_column"),
    ],
)
def test_keys_must_fit_the_type_and_its_rows(tmp_path, problem_type, changes, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, problem_type, **changes)


NAMES = datasets.ClassLabel(names=["warm", "cool", "far"])


def load_hub(folder, columns, features, **keys):
    """Load rows of a folder that is laid out as a dataset of the Hub."""
    hub_id = write_hub(folder / "hub", features, train=columns, validation=columns)
    keys = {"hub_id": hub_id, "text_columns": "a", "label_column": "y", **keys}
    return load_task(TaskData.from_recipe("own", keys))


@pytest.mark.parametrize(
    ("problem_type", "feature", "values", "labels", "names"),
    [
        ("classification", NAMES, [0, 2], [0, 2], ("warm", "cool", "far")),
        # labels of which none excludes another are in the order of the alphabet
        (
            "multi_label_classification",
            datasets.List(NAMES),
            [[0, 2], [1]],
            [[1, 0, 1], [0, 1, 0]],
            ("warm", "cool", "far"),
        ),
        ("multi_output_classification", NAMES, [0, 2], [[1], [0]], None),
        ("regression", NAMES, [0, 2], [0, 2], None),  # words are no numbers, and stay unread
    ],
)
def test_names_that_a_dataset_declares_replace_its_numbers(
    tmp_path, problem_type, feature, values, labels, names
):
    text = datasets.Value("string")
    features = datasets.Features({"a": text, "y": feature})
    columns = {"a": ["one", "two"], "y": values}
    several = problem_type == "multi_output_classification"
    keys = {"label_column": None, "label_columns": ["y"]} if several else {}

    loaded = load_hub(tmp_path, columns, features, problem_type=problem_type, **keys)

    assert loaded.labels == names
    assert loaded.splits["train"]["label"][:] == labels


WORDS = datasets.ClassLabel(names=["other", "same"])
STARS = datasets.ClassLabel(names=["5", "1"])


@pytest.mark.parametrize(
    ("problem_type", "feature", "labels", "expected", "backward"),
    [
        ("classification", NAMES, None, [0, 1], [2, 1]),
        ("classification", NAMES, ["far", "cool", "warm"], [2, 1], [0, 1]),
        ("classification", NAMES, ["hot", "cold", "away"], [0, 1], [2, 1]),
        # words are no numbers, and stay unread
        ("paraphrase", WORDS, None, [0, 1], [0, 1]),
        ("regression", WORDS, None, [0, 1], [0, 1]),
        ("regression", STARS, None, [5, 1], [1, 5]),
        ("multi_output_classification", WORDS, None, [[0], [1]], [[1], [0]]),
    ],
)
def test_names_of_a_parquet_file_replace_its_numbers(
    tmp_path, caplog, problem_type, feature, labels, expected, backward
):
    text = datasets.Value("string")
    columns = {"a": ["one", "two"], "b": ["x", "y"], "y": [0, 1]}
    keys = {"problem_type": problem_type, "labels": labels}
    keys |= {"label_columns": "y"} if "output" in problem_type else {"label_column": "y"}
    keys["text_columns"] = ["a", "b"] if problem_type == "paraphrase" else "a"
    for split, step in {"train": 1, "validation": -1}.items():
        names = datasets.ClassLabel(names=feature.names[::step])
        keys[f"{split}_file"] = str(tmp_path / f"{split}.parquet")
        features = datasets.Features({"a": text, "b": text, "y": names})
        datasets.Dataset.from_dict(columns, features).to_parquet(keys[f"{split}_file"])

    splits = load_task(TaskData.from_recipe("own", keys)).splits

    assert splits["train"]["label"][:] == expected
    assert splits["validation"]["label"][:] == backward
    assert ("'other', 'same' of column 'y' are no numbers" in caplog.text) is (expected == backward)


def write_parquet(path, names, labels):
    features = {"a": datasets.Value("string"), "y": datasets.ClassLabel(names=names)}
    columns = {"a": [f"text {n}" for n in range(len(labels))], "y": labels}
    datasets.Dataset.from_dict(columns, datasets.Features(features)).to_parquet(path)
    return str(path)


def test_names_of_another_parquet_file_are_not_read_by_position(tmp_path):
    keys = {"problem_type": "classification", "text_columns": "a", "label_column": "y"}
    keys |= {
        "labels": ["neg", "pos"],
        "train_file": write_parquet(tmp_path / "a.parquet", ["neg", "pos"], [0, 1]),
    }
    keys["validation_file"] = write_parquet(
        tmp_path / "b.parquet", ["positive", "negative"], [0, 1]
    )

    with pytest.raises(ValueError, match=r"b.parquet: 2 of 2 rows are invalid.*'positive'"):
        load_task(TaskData.from_recipe("own", keys))


def test_a_folder_of_parquet_files_with_other_classes_is_refused(tmp_path):
    for split, names in {"train": ["neg", "pos"], "validation": ["pos", "neg"]}.items():
        write_parquet(tmp_path / f"{split}.parquet", names, [0, 1])
    keys = {"problem_type": "classification", "text_columns": "a", "label_column": "y"}

    with pytest.raises(ValueError, match=r"train.parquet has neg, pos, and validation.parquet has"):
        load_task(TaskData.from_recipe("own", {**keys, "hub_id": str(tmp_path)}))


def test_an_output_of_a_parquet_file_may_have_no_label(tmp_path):
    path = write_parquet(tmp_path / "a.parquet", ["bad", "good"], [0, 1, -1])
    keys = {"problem_type": "multi_output_classification", "text_columns": "a"}
    keys |= {"label_columns": ["y"], "train_file": path, "validation_file": path}

    loaded = load_task(TaskData.from_recipe("own", keys | {"max_invalid_fraction": 0.5}))

    assert loaded.head_facts()["classes"] == [["bad", "good"]]
    assert loaded.splits["train"]["label"][:] == [[0], [1]]


@pytest.mark.parametrize(
    ("labels", "expected"), [(["hot", "cold", "away"], [0, 2]), (["cool", "far"], [1])]
)
def test_as_many_labels_rename_those_of_a_dataset_and_fewer_do_not(tmp_path, labels, expected):
    features = datasets.Features({"a": datasets.Value("string"), "y": NAMES})
    columns = {"a": ["one", "two"], "y": [0, 2]}
    keys = {"problem_type": "classification", "labels": labels, "max_invalid_fraction": 0.5}

    loaded = load_hub(tmp_path, columns, features, **keys)

    assert loaded.splits["train"]["label"][:] == expected


@pytest.mark.parametrize("problem_type", TASKS)
def test_a_row_that_shows_nothing_is_invalid_in_every_type(tmp_path, problem_type):
    _, rows, _ = TASKS[problem_type]
    column = {"token_classification": "tokens", "question_answering": "question"}.get(
        problem_type, "a"
    )
    words = rows[0][column]
    blank = "\u00a0\ufeff\u3164\u200d"
    nothing = [blank] * len(words) if isinstance(words, list) else blank
    lines = [*rows, {**rows[0], "id": "blank", column: nothing}]

    task = load(tmp_path, problem_type, lines, max_invalid_fraction=0.5)

    assert [row.line for row in task.bad_rows] == [len(lines)] * 2
    assert all(row.reason.startswith("empty text") for row in task.bad_rows)


@pytest.mark.parametrize(("written", "is_secret"), [([-1, -1], True), ([-1, 0.5], False)])
@pytest.mark.parametrize("columns", [["y"], ["y", "z"]])
def test_numbers_of_test_rows_may_be_secret(tmp_path, columns, written, is_secret):
    rows = [{**PAIR, **dict.fromkeys(columns, number)} for number in written]
    path = write_jsonl(tmp_path / "test.jsonl", rows)

    task = load(
        tmp_path, "regression", label_columns=columns, test_file=path, max_invalid_fraction=0.5
    )

    assert ("label" not in task.splits["test"].column_names) is is_secret


@pytest.mark.parametrize("problem_type", ["classification", "multi_label_classification"])
def test_a_number_is_no_name_without_a_given_order(tmp_path, problem_type):
    keys = {"problem_type": problem_type, **TASKS[problem_type][0], "max_invalid_fraction": 0.5}
    rows = [{"a": "one", "y": "warm"}, {"a": "two", "y": "cool"}]
    dev = write_jsonl(tmp_path / "dev.jsonl", [*rows, {"a": "three", "y": "1"}])

    task = load_rows(tmp_path, "rows.jsonl", rows, **keys, validation_file=dev)

    (row,) = task.bad_rows
    assert row.reason.startswith("label '1' is not among the labels 'cool', 'warm'; a number")


def answers(text, *start):
    return {"answers": [dict(zip(("text", "answer_start"), (text, *start), strict=False))]}


CATS = {"far": 1.0, "up": 0.0}  # as spaCy writes labels
INVALID = {
    "classification": [
        ({"a": "", "y": ""}, "empty text in column 'a', no label"),
        ({"y": "x"}, "label 'x' is not among the labels 'down', 'up' or their numbers 0 to 1"),
        ({"y": CATS}, "label {'far': 1.0, 'up': 0.0} is no name; write the names of labels, or"),
    ],
    "token_classification": [
        ({"tags": None}, "no tags, which only test rows may lack"),
        ({"tags": [*"OABCA", [CATS]]}, "expected a list of names of tags"),
        ({"tags": [*"OABCAX"]}, "unknown tag 'X'; the tags of the training rows are 'O', 'A'"),
    ],
    "regression": [
        ({"y": "1e39"}, "too large for float32"),
        ({"y": "1_0"}, "label '1_0' is not a number"),
    ],
    "multi_label_classification": [
        ({"y": ["up", "wrm"]}, "'wrm' is not among the labels 'far', 'up'"),
        ({"y": None}, "no label"),
        ({"y": CATS}, "label {'far': 1.0, 'up': 0.0} is no name"),
        ({"y": ["up", CATS]}, "label {'far': 1.0, 'up': 0.0} is no name"),
        ({"y": [["up"]]}, "label ['up'] is no name"),
    ],
    "multi_output_classification": [
        ({"y": CATS}, "label {'far': 1.0, 'up': 0.0} is no name"),
        ({"y": ["up"]}, "label ['up'] is no name"),
        ({"y": None, "z": ""}, "no label"),
    ],
    "question_answering": [
        (answers("a dyke", 4), "at 4 there is 'mill s'"),
        (answers("the river", 4), "at 4 there is 'mill stoo', but it is at 18: correct answer_st"),
        (answers("dyke", 99), "99 is beyond its 28 characters"),
        (answers(" ", 3), "an answer without text"),
        ({"is_impossible": True}, "is_impossible, although it has answers"),
        ({"id": "r"}, "duplicate id 'r'"),
    ],
}


@pytest.mark.parametrize(
    ("problem_type", "change", "reason"),
    [(kind, *row) for kind, rows in INVALID.items() for row in rows],
)
def test_an_invalid_row_is_skipped_with_its_reason(tmp_path, problem_type, change, reason):
    _, rows, _ = TASKS[problem_type]
    lines = [*rows, {**rows[0], "id": "7", **change}]
    named = {"multi_label_classification": ["far", "up"], "classification": ["down", "up"]}
    named["token_classification"] = ["O", "A", "B", "C"]
    keys = {"labels": named[problem_type]} if problem_type in named else {}

    task = load(tmp_path, problem_type, lines, max_invalid_fraction=0.5, **keys)

    assert [row.line for row in task.bad_rows] == [len(lines)] * 2
    assert all(reason in row.reason for row in task.bad_rows)
    assert len(task.splits["train"]) == len(rows)


@pytest.mark.parametrize(
    ("problem_type", "labels"),
    [
        ("classification", ["caf\u00e9", "cafe\u0301", "tea"]),
        ("multi_label_classification", [["caf\u00e9", "tea"], ["cafe\u0301"]]),
        ("token_classification", [["O", "B-caf\u00e9"], ["O", "B-cafe\u0301"]]),
    ],
)
def test_labels_that_look_the_same_are_an_error_or_invalid(tmp_path, problem_type, labels):
    is_tags = problem_type == "token_classification"
    keys = {} if is_tags else {"text_columns": "text", "label_column": "tags"}
    texts = {"tokens": ["a", "b"], "text": "a b"}

    def load(*given):
        files = {
            f"{name}_file": write_jsonl(
                tmp_path / f"{name}.jsonl", [{**texts, "tags": label} for label in many]
            )
            for name, many in zip(("train", "validation"), given, strict=True)
        }
        recipe = {"problem_type": problem_type, "max_invalid_fraction": 0.9, **keys, **files}
        return load_task(TaskData.from_recipe("mine", recipe))

    with pytest.raises(ValueError, match=r"task 'mine': the labels .*\\.* and .*\\.* look the"):
        load(labels, labels)
    other, last = labels[1], labels[-1]
    task = load([labels[0], last] if other != last else [labels[0]], [labels[0], other])
    (row,) = task.bad_rows
    assert "look the same" in row.reason
    assert "cafe\\u0301" in row.reason


@pytest.mark.parametrize(
    ("problem_type", "keys", "written", "labels"),
    [
        ("classification", {"labels": ["up", "down"]}, ["down", "1", 1.0, 0], [1, 1, 1, 0]),
        ("classification", {"labels": ["1", "2"]}, ["1", 2.0, "2.0"], [0, 1, 1]),
        # numbers are sorted by size, if all labels are numbers
        ("classification", {}, ["10", "9", "10.0"], [1, 0, 1]),
        ("classification", {}, ["10", "9", "x"], [0, 1, 2]),
        ("paraphrase", {}, ["1.0", True, "false"], [1, 1, 0]),
        ("similarity", {"score_range": [0, 5]}, [5, "2.5"], [5.0, 2.5]),
        ("regression", {}, [".0", "-.0", "2.0"], [0.0, 0.0, 2.0]),
        ("classification", {}, ["part time", "parttime"], [0, 1]),
        (
            "multi_label_classification",
            {"labels": ["1.0", "2"]},
            ["1.0,2.0", "2"],
            [[1, 1], [0, 1]],
        ),
    ],
)
def test_labels_as_files_write_them(tmp_path, problem_type, keys, written, labels):
    columns = ["a", "b"] if problem_type in ("paraphrase", "similarity") else ["a"]
    rows = [{"a": f"a {place}", "b": "b", "y": label} for place, label in enumerate(written)]
    keys = {"problem_type": problem_type, "text_columns": columns, "label_column": "y"} | keys

    task = load_rows(tmp_path, "rows.jsonl", rows, **keys)

    assert task.splits["train"]["label"][:] == labels
