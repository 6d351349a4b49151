"""`load_task`: invalid rows, test rows, more held-out sets, folders of the Hub, and the cache."""

import tracemalloc
from pathlib import Path

import datasets
import pytest

from datasets_scripts import Encoding, InvalidRow, TaskData, load_task, train_wordpiece
from datasets_scripts.loading import hash_sources
from tests.small_run import load_rows, write_hub, write_jsonl

GOOD = [("good film", "up"), ("bad film", "down"), ("fine film", "up")]


def delimited(rows=GOOD, header=("text", "label")):
    return "".join("\t".join(row) + "\n" for row in [header, *rows])


def load(folder, train=GOOD, dev=GOOD, test=None, **keys):
    recipe = {"problem_type": "classification", "text_columns": ["text"], "label_column": "label"}
    for split, rows in {"train": train, "validation": dev, "test": test}.items():
        if rows is not None:
            path = folder / f"{split}.tsv"
            path.write_text(delimited(rows), encoding="utf-8")
            recipe[f"{split}_file"] = str(path)
    return load_task(TaskData.from_recipe("mine", recipe | keys))


@pytest.mark.parametrize(
    ("rows", "labels", "bad"),
    [
        (GOOD, [1, 0, 1], []),
        ([("a", "-1"), ("b", "-1")], None, []),  # secret labels
        ([("a", "up"), ("b", "")], [1], ["no label, though other rows have one"]),
    ],
)
def test_test_rows_keep_their_labels_or_have_none(tmp_path, rows, labels, bad):
    task = load(tmp_path, test=rows, max_invalid_fraction=0.5)

    found = task.splits["test"]
    assert (found["label"][:] if labels else None) == labels
    assert found.column_names == ["id", "sentence1", *(["label"] if labels else [])]
    assert [row.reason for row in task.bad_rows] == bad


def test_a_row_that_cannot_be_used_is_named_and_left_out(tmp_path, caplog):
    long = "a long sentence of somebody that stands in the wrong column"
    keys = {"max_invalid_fraction": 0.4, "labels": ["up", "down"]}
    task = load(tmp_path, [*GOOD, ("text", ""), ("text", long)], **keys)

    place = str(tmp_path / "train.tsv")
    assert len(task.splits["train"]) == 3
    assert task.bad_rows[0] == InvalidRow(place, 5, "no label")
    assert f"{place}:5: no label" in caplog.text
    bad = task.bad_rows[1]
    assert "label 'a long sentence of somebody that stands ...' is not among" in str(bad)
    assert bad.describe(quotes=True) == str(bad)
    assert bad.describe(quotes=False) == f"{place}:6: see the log of the run for the reason"
    with pytest.raises(
        ValueError, match=r"no row is left, since all 1 are invalid.* line 2: empty"
    ):
        load(tmp_path, [("", "up")], max_invalid_fraction=1)


def test_ids_of_several_rows_are_reported(tmp_path, caplog):
    load(tmp_path, id_column="label", max_invalid_fraction=0.5)
    assert "several validation rows have the id 'up'" in caplog.text


def test_distances_of_labels_need_their_order(tmp_path):
    with pytest.raises(ValueError, match="mae is a distance of labels, but 'down', 'up' are in"):
        load(tmp_path, metrics=["accuracy", "mae"])
    assert load(tmp_path, metrics=["mae"], labels=["down", "up"]).labels == ("down", "up")


def test_a_folder_in_the_layout_of_the_hub(tmp_path):
    for split, labels in {"train": [0, 1], "validation": [1, 0], "test": [-1, -1]}.items():
        rows = [{"a": f"q {n}", "b": "r", "label": y, "idx": n} for n, y in enumerate(labels)]
        write_jsonl(tmp_path / f"{split}.jsonl", rows)
    keys = {"problem_type": "paraphrase", "text_columns": ["a", "b"], "label_column": "label"}
    keys |= {"hub_id": str(tmp_path), "id_column": "idx"}

    task = load_task(TaskData.from_recipe("pairs", keys))

    assert task.splits["train"].to_dict() == {
        "id": ["0", "1"],
        "sentence1": ["q 0", "q 1"],
        "sentence2": ["r", "r"],
        "label": [0, 1],
    }
    assert "label" not in task.splits["test"].column_names
    data = TaskData.from_recipe("pairs", keys | {"validation_share": 0.4})
    with pytest.raises(ValueError, match="has a split 'validation', so validation_share=0"):
        load_task(data)
    (tmp_path / "validation.jsonl").unlink()
    data = TaskData.from_recipe("pairs", keys | {"validation_share": 0})
    with pytest.raises(ValueError, match="has no split 'validation'; its splits: "):
        load_task(data)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # datasets 4 leaves the files open
@pytest.mark.parametrize("labels", [["1.1", "1.10"], ["None", "some"], ["02139", "2139"]])
def test_csv_of_the_hub_is_read_as_it_is_written(tmp_path, labels):
    lines = ["id,text,label", *(f"0{n},{n},{labels[n % 2]}" for n in range(8))]
    for split in ("train", "validation"):
        (tmp_path / f"{split}.csv").write_text("\n".join(lines))
    keys = {"problem_type": "classification", "text_columns": "text", "label_column": "label"}

    task = load_task(TaskData.from_recipe("own", keys | {"hub_id": str(tmp_path)}))

    assert (task.labels, task.splits["train"]["id"][1]) == (tuple(labels), "01")


@pytest.mark.parametrize("name", ["val", "eval", "evaluation", "held"])
def test_splits_of_the_hub_are_known_by_usual_names(tmp_path, caplog, name):
    splits = {split: {"a": list("qrst"), "y": [0, 1, 0, 1]} for split in ("train", name, "testing")}
    keys = {"problem_type": "classification", "text_columns": ["a"], "label_column": "y"}
    keys["hub_id"] = write_hub(tmp_path, **splits)

    rows = load_task(TaskData.from_recipe("own", keys)).splits

    is_known = name != "held"
    assert (len(rows["train"]) == 4, len(rows["test"])) == (is_known, 4)
    assert ("these splits are not read: held" in caplog.text) is not is_known


@pytest.mark.parametrize("columns", [["a"], ["c", "a", "b"]])
def test_contrastive_rows_are_texts_alone(tmp_path, columns):
    content = "a\tb\tc\nx\ty\tz\nu\tv\tw\n"
    keys = {"problem_type": "contrastive", "text_columns": columns}

    task = load_rows(tmp_path, "rows.tsv", content, **keys)

    first = {"a": "x", "b": "y", "c": "z"}
    names = {f"sentence{place}": first[name] for place, name in enumerate(columns, start=1)}
    assert task.splits["train"][0] == {"id": "0", **names}
    assert (len(task.splits["validation"]), task.labels, task.bad_rows) == (2, None, [])


def test_only_encoded_rows_are_cached_and_known_by_their_rows(tmp_path):
    def encode(rows):
        task = load(tmp_path, rows, max_invalid_fraction=0.5)
        encoded = task.encode(tokenizer, Encoding(8))
        return task.bad_rows, [file["filename"] for file in encoded["train"].cache_files]

    rows = [*GOOD, ("text", "")]
    tokenizer = train_wordpiece([text for text, _ in GOOD], 40)
    (bad, first), (bad_again, again) = encode(rows), encode(rows)  # written anew
    _, changed = encode([*GOOD[:2], ("fine film", "down")])

    assert bad == bad_again
    assert first == again != changed


def test_all_code_that_makes_tokens_is_known_to_the_cache(monkeypatch):
    names = []
    monkeypatch.setattr(Path, "read_bytes", lambda path: names.append(path.stem) or b"")
    hash_sources()
    assert {"corpus", "pieces", "questions", "readers", "row_format", "texts"} <= {*names}


def test_the_fingerprint_depends_on_the_rows(tmp_path):
    first, again = load(tmp_path).fingerprint, load(tmp_path).fingerprint  # written anew
    changed = load(tmp_path, [*GOOD[:2], ("fine film", "down")]).fingerprint
    held = load(tmp_path, dev=GOOD[:2]).fingerprint
    drawn = load(tmp_path, max_train_samples=2).fingerprint

    assert again == first
    assert len({first, changed, held, drawn}) == 4


@pytest.mark.parametrize(
    "keys", [{}, {"problem_type": "multi_output_classification", "label_columns": ["label"]}]
)
def test_the_fingerprint_depends_on_the_names_of_labels(tmp_path, keys):
    keys = {"label_column": None if keys else "label", **keys}
    renamed = [(text, label.replace("down", "bad")) for text, label in GOOD]

    first, other = (load(tmp_path, rows, rows, **keys) for rows in (GOOD, renamed))

    assert first.splits["train"]["label"][:] == other.splits["train"]["label"][:]
    assert first.fingerprint != other.fingerprint


def test_a_task_of_long_rows_is_loaded_in_pieces(tmp_path):
    rows = [("a" * 2_000_000 + str(number), str(number)) for number in range(12)]
    for split, some in {"train": rows, "dev": rows[:2]}.items():
        (tmp_path / f"{split}.tsv").write_text(delimited(some))
    size = sum(len(text) for text, _ in rows)
    del rows
    keys = {"problem_type": "classification", "text_columns": ["text"], "label_column": "label"}
    keys |= {"train_file": str(tmp_path / "train.tsv")}
    data = TaskData.from_recipe("own", keys | {"validation_file": str(tmp_path / "dev.tsv")})
    tracemalloc.start()

    task = load_task(data)

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(task.splits["train"]) == 12
    assert peak < 2 * size  # all of it at once takes three times as much


def test_an_id_that_is_text_stays_as_it_is(tmp_path):
    rows = [(text, label, f"{n}.0") for n, (text, label) in enumerate(GOOD)]
    (tmp_path / "ids.tsv").write_text(delimited(rows, ("text", "label", "id")), encoding="utf-8")
    numbers = [{"text": text, "label": label, "id": float(n)} for text, label, n in rows]

    tables = [str(tmp_path / "ids.tsv"), write_jsonl(tmp_path / "ids.jsonl", numbers)]
    texts, written = (load(tmp_path, dev=None, validation_file=path) for path in tables)

    assert texts.splits["validation"]["id"][:] == ["0.0", "1.0", "2.0"]
    assert written.splits["validation"]["id"][:] == ["0", "1", "2"]
    path = str(tmp_path / "ids.parquet")
    binary = [{**row, "id": b"\xff" + bytes([n])} for n, row in enumerate(numbers)]
    datasets.Dataset.from_list(binary).to_parquet(path)
    binary = load(tmp_path, dev=None, validation_file=path).splits["validation"]
    assert binary["id"][:] == ["ff00", "ff01", "ff02"]


def test_labels_of_a_recipe_are_written_as_those_of_rows(tmp_path):
    rows = [("good film", "1.0"), ("bad film", "2.0"), ("fine film", "0.5")]
    task = load(tmp_path, rows, rows, labels=["2.0", "1.0", "0.5"])

    assert task.labels == ("2", "1", "0.5")
    assert task.splits["train"]["label"][:] == [1, 0, 2]
