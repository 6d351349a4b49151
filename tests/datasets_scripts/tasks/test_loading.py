"""`load_task`: formats, bad rows, labels, and files that cannot be read."""

import gzip
import json
import tracemalloc

import datasets
import pytest

from datasets_scripts import Encoding, InvalidRow, TaskData, load_task, train_wordpiece

GOOD = [("good film", "up"), ("bad film", "down"), ("fine film", "up")]
SENTIMENT_HEADER = "\tid\tsentence\tsentiment\n"


def write(folder, **files):
    """Write files; ``train_tsv="..."`` becomes train.tsv."""
    for name, text in files.items():
        folder.joinpath(name.replace("_", ".", 1)).write_bytes(
            text if isinstance(text, bytes) else text.encode()
        )


def load_files(folder, suffix="tsv", **keys):
    recipe = {
        "problem_type": "classification",
        "train_file": str(folder / f"train.{suffix}"),
        "validation_file": str(folder / f"dev.{suffix}"),
        "text_columns": ["text"],
        "label_column": "label",
        **keys,
    }
    return load_task(TaskData.from_recipe("mine", recipe), cache_dir=folder / "cache")


def delimited(rows=GOOD, delimiter="\t"):
    return "".join(f"{delimiter.join(row)}\n" for row in [("text", "label"), *rows])


def load_tsv(folder, train, dev=None, **keys):
    write(folder, train_tsv=train, dev_tsv=dev or delimited())
    return load_files(folder, **keys)


def load_course(folder, dataset, **files):
    for name, text in files.items():
        folder.joinpath(name).write_text(text, encoding="utf-8")
    return load_task(
        TaskData.from_recipe(dataset, {"dataset": dataset}, folder), cache_dir=folder / "cache"
    )


# The official files


def test_sst_files_of_the_course(tmp_path):
    task = load_course(
        tmp_path,
        "sst",
        **{
            "ids-sst-train.csv": SENTIMENT_HEADER + "0\tab1\t A film .\t3\n1\tab2\tNo .\t0\n",
            "ids-sst-dev.csv": SENTIMENT_HEADER + "0\tcd1\tWell .\t4\n",
            "ids-sst-test-student.csv": "0\t\tid\tsentence\n1\t0.0\tef1\tHm .\n",
        },
    )

    assert task.splits["train"][0] == {"id": "ab1", "sentence1": "A film .", "label": 3}
    assert task.splits["validation"]["label"][:] == [4]
    assert task.splits["test"][0] == {"id": "ef1", "sentence1": "Hm ."}
    assert task.labels == (
        "negative",
        "somewhat negative",
        "neutral",
        "somewhat positive",
        "positive",
    )


# The user's own files


@pytest.mark.parametrize(("suffix", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_suffix_gives_the_delimiter(tmp_path, suffix, delimiter):
    text = delimited(delimiter=delimiter)
    write(tmp_path, **{f"train_{suffix}": text, f"dev_{suffix}": text})

    task = load_files(tmp_path, suffix)

    assert task.labels == ("down", "up")
    assert task.splits["train"].to_dict() == {
        "id": ["0", "1", "2"],
        "sentence1": ["good film", "bad film", "fine film"],
        "label": [1, 0, 1],
    }


def test_parquet_in_a_folder_with_brackets(tmp_path):
    folder = tmp_path / "data [1]"
    folder.mkdir()
    texts, labels = zip(*GOOD, strict=True)
    for name in ("train", "dev"):
        rows = datasets.Dataset.from_dict({"text": texts, "label": labels})
        rows.to_parquet(folder / f"{name}.parquet")

    task = load_files(folder, "parquet")

    assert task.splits["validation"]["sentence1"][:] == ["good film", "bad film", "fine film"]
    assert task.splits["validation"]["label"][:] == [1, 0, 1]


def test_test_rows_with_labels_keep_them(tmp_path):
    write(tmp_path, test_tsv=delimited())

    task = load_tsv(tmp_path, delimited(), test_file=str(tmp_path / "test.tsv"))

    assert task.splits["test"]["label"][:] == [1, 0, 1]


def test_secret_labels_make_an_unlabelled_test_split(tmp_path):
    write(tmp_path, test_tsv=delimited([("a", "-1"), ("b", "-1")]))

    task = load_tsv(tmp_path, delimited(), test_file=str(tmp_path / "test.tsv"))

    assert task.splits["test"].column_names == ["id", "sentence1"]
    assert task.bad_rows == []


# Bad rows


def test_a_single_test_row_without_a_label_is_bad(tmp_path):
    write(tmp_path, test_tsv=delimited([("a", "up"), ("b", "")]))

    keys = {"test_file": str(tmp_path / "test.tsv"), "max_invalid_fraction": 0.5}
    (bad,) = load_tsv(tmp_path, delimited(), **keys).bad_rows

    assert bad.reason == "no label, though other rows have one"


def test_a_row_that_cannot_be_used_is_named_and_left_out(tmp_path, caplog):
    task = load_tsv(tmp_path, delimited([*GOOD, ("text", "")]), max_invalid_fraction=0.25)

    assert len(task.splits["train"]) == 3
    assert task.bad_rows == [InvalidRow(str(tmp_path / "train.tsv"), 5, "no label")]
    assert "train.tsv:5: no label" in caplog.text


def test_an_invalid_row_is_named_without_its_content(tmp_path):
    rows = delimited(
        [*GOOD, ("text", "a long sentence of somebody that stands in the wrong column")]
    )
    (bad,) = load_tsv(tmp_path, rows, max_invalid_fraction=0.25, labels=["up", "down"]).bad_rows

    assert "label 'a long sentence of somebody that stands ...' is not among" in str(bad)
    place = f"{tmp_path / 'train.tsv'}:5"
    assert bad.describe(quotes=True) == str(bad)
    assert bad.describe(quotes=False) == f"{place}: see the log of the run for the reason"


def test_only_encoded_rows_are_cached_and_known_by_their_rows(tmp_path):
    def encode(rows):
        task = load_tsv(tmp_path, delimited(rows), max_invalid_fraction=0.5)
        encoded = task.encode(tokenizer, Encoding(8))
        return task.bad_rows, [file["filename"] for file in encoded["train"].cache_files]

    rows = [*GOOD, ("text", "")]
    tokenizer = train_wordpiece([text for text, _ in GOOD], 40)
    (bad, first), (bad_again, again) = encode(rows), encode(rows)  # written anew
    _, changed = encode([*GOOD, ("fine film", "up")])

    assert bad == bad_again
    assert first == again != changed
    assert len(list((tmp_path / "cache" / "minbert_rows").iterdir())) == 3  # one of validation


# Files that cannot be read


def test_the_fingerprint_depends_on_the_rows(tmp_path):
    first = load_tsv(tmp_path, delimited()).fingerprint
    again = load_tsv(tmp_path, delimited()).fingerprint  # written anew
    changed = load_tsv(tmp_path, delimited([*GOOD[:2], ("fine film", "down")])).fingerprint
    held = load_tsv(tmp_path, delimited(), delimited(GOOD[:2])).fingerprint
    drawn = load_tsv(tmp_path, delimited(), max_train_samples=2).fingerprint

    assert again == first
    assert len({first, changed, held, drawn}) == 4


@pytest.mark.parametrize("suffix", ["tsv.gz", "jsonl.gz"])
def test_compressed_files_have_the_rows_of_the_files(tmp_path, suffix):
    lines = [json.dumps({"text": text, "label": label}) for text, label in GOOD]
    text = delimited() if suffix == "tsv.gz" else "\n".join(lines)
    packed = gzip.compress(text.encode())
    write(tmp_path, **{f"train_{suffix}": packed, f"dev_{suffix}": packed})

    task = load_files(tmp_path, suffix)

    assert task.splits["train"]["sentence1"][:] == [text for text, _ in GOOD]
    assert task.labels == ("down", "up")


# Rows without labels


@pytest.mark.parametrize("columns", [["a"], ["a", "b"], ["c", "a", "b"]])
def test_contrastive_rows_are_texts_alone(tmp_path, columns):
    text = "a\tb\tc\nx\ty\tz\nu\tv\tw\n"

    task = load_tsv(
        tmp_path,
        text,
        text,
        problem_type="contrastive",
        text_columns=columns,
        label_column=None,
    )

    first = {"a": "x", "b": "y", "c": "z"}
    names = {f"sentence{place}": first[name] for place, name in enumerate(columns, start=1)}
    assert task.splits["train"][0] == {"id": "0", **names}
    assert len(task.splits["validation"]) == 2
    assert (task.labels, task.bad_rows) == (None, [])


def test_a_task_of_long_rows_is_loaded_in_pieces(tmp_path):
    rows = [("a" * 2_000_000 + str(number), str(number)) for number in range(20)]
    write(tmp_path, train_tsv=delimited(rows), dev_tsv=delimited(rows[:2]))
    size = sum(len(text) for text, _ in rows)
    del rows
    tracemalloc.start()

    task = load_files(tmp_path)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(task.splits["train"]) == 20
    assert peak < 1.5 * size  # all of it at once takes three times as much
