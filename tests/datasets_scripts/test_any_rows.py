"""Whatever a file holds, it gives rows or one error that names the file."""

import csv
import io
import json

from hypothesis import strategies as st

from datasets_scripts import CorpusData, TaskData, TrainingTexts, load_task
from tests.any_input import attempt, check

KEYS = {
    "classification": {"text_columns": ["a"], "label_column": "y"},
    "multi_label_classification": {"text_columns": ["a"], "label_column": "y"},
    "paraphrase": {"text_columns": ["a", "b"], "label_column": "y"},
    "similarity": {"text_columns": ["a", "b"], "label_column": "y", "score_range": [0, 5]},
    "regression": {"text_columns": ["a"], "label_columns": ["y", "b"]},
    "multi_output_classification": {"text_columns": ["a"], "label_columns": ["y", "b"]},
    "contrastive": {"text_columns": ["a"]},
    "token_classification": {},
    "question_answering": {},
}
LETTERS = st.characters(codec="utf-8") | st.sampled_from(',\t;|"\r\n{}[]: \ufeff\x00\u2028\x85a01')
TEXTS = st.text(LETTERS, max_size=12) | st.sampled_from(
    ["up", "down", "0", "1", "1.0", "-1", "nan", "1e999", "true", "O", "B-X", "a word"]
)
SCALARS = (
    TEXTS
    | st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-1, 2)
    | st.floats()
    | st.sampled_from([10**400, "\ud800", "a\udfffb"])  # written with escapes
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["text", "answer_start", "a", "label"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
ANSWERS = st.fixed_dictionaries({"text": st.lists(TEXTS), "answer_start": st.lists(VALUES)})
COLUMNS = {
    "a": TEXTS | VALUES,
    "b": TEXTS | VALUES,
    "y": TEXTS | VALUES,
    "c": st.lists(TEXTS, max_size=3) | VALUES,
    "id": VALUES,
    "tokens": st.lists(TEXTS, max_size=3) | VALUES,
    "tags": st.lists(st.sampled_from(["O", "B-X", "I-X", "S"]), max_size=3) | VALUES,
    "question": TEXTS | VALUES,
    "context": TEXTS | VALUES,
    "answers": ANSWERS | VALUES,
    "is_impossible": VALUES,
}
# Rows with all columns, some of them without some.
ROWS = st.lists(
    st.fixed_dictionaries(COLUMNS)
    | st.fixed_dictionaries({}, optional={**COLUMNS, "note": VALUES})
    | VALUES,
    max_size=4,
)
CELLS = st.sampled_from([*"abcy", "id"]) | TEXTS
TABLES = st.lists(st.lists(CELLS, max_size=5), max_size=4)
CONLL = st.lists(
    st.sampled_from(["", "\n", "-DOCSTART- O\n", "a O\n", "b B-X\n", "c\tI-X\n"]) | TEXTS
).map("".join)
KINDS = st.sampled_from(sorted(KEYS))


def assert_rows_or_error(folder, problem_type, name, content):
    """Load a task whose files have some content: it has rows, or an error that names the file."""
    path = folder / name
    path.write_bytes(content)
    files = {"train_file": str(path), "validation_file": str(path), "max_invalid_fraction": 0.9}
    recipe = {"problem_type": problem_type, **KEYS[problem_type], **files}
    data = TaskData.from_recipe("own", recipe)
    task, message = attempt(lambda: load_task(data), ValueError)
    if message is None:
        assert task.splits.keys() == {"train", "validation"}
        assert all(text.encode() for text in task.texts())
    else:
        assert name in message or "task 'own'" in message
        assert len(message) < 2000


def write_table(rows, delimiter):
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter).writerows(rows)
    return file.getvalue().encode()


def write_jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".conll", ".csv.gz", ".jsonl.zst")
SUFFIXES += (".tsv.bz2", ".json.xz")


HEADED = TABLES | TABLES.map(lambda rows: [["a", "b", "y", "id", "c"], *rows])
JSON = ROWS | st.fixed_dictionaries({"data": ROWS | VALUES}) | VALUES
FILES = st.one_of(
    st.tuples(KINDS, st.sampled_from(SUFFIXES), st.binary(max_size=40)),
    st.tuples(KINDS, st.just(".csv"), HEADED.map(lambda rows: write_table(rows, ","))),
    st.tuples(KINDS, st.just(".tsv"), HEADED.map(lambda rows: write_table(rows, "\t"))),
    st.tuples(KINDS, st.just(".jsonl"), ROWS.map(write_jsonl)),
    st.tuples(
        st.just("question_answering"),
        st.just(".json"),
        JSON.map(lambda content: json.dumps(content).encode()),
    ),
    st.tuples(st.just("token_classification"), st.just(".conll"), CONLL.map(str.encode)),
)


@check(200, FILES)
def test_any_file_is_rows_or_an_error(tmp_path, drawn):
    problem_type, suffix, content = drawn

    assert_rows_or_error(tmp_path, problem_type, f"rows{suffix}", content)


def test_a_long_value_is_not_quoted_in_full(tmp_path):
    row = {"id": [10**1500], "question": "", "context": "", "answers": {}}
    content = json.dumps({"data": [row, row]}).encode()
    assert_rows_or_error(tmp_path, "question_answering", "rows.json", content)


@check(60, st.tuples(st.sampled_from(["", ".txt", *SUFFIXES]), st.binary(max_size=40) | CONLL))
def test_any_file_is_documents_or_an_error(tmp_path, drawn):
    suffix, content = drawn
    path = tmp_path / f"rows{suffix}"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    column = {} if suffix in ("", ".txt") else {"text_column": "a"}
    data = CorpusData.from_recipe("own", {"train_file": str(path), **column})

    texts, message = attempt(lambda: list(TrainingTexts([data])), ValueError)

    assert all(text.encode() for text in texts) if message is None else path.name in message
