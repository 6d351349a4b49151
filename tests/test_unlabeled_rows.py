"""Training rows without labels, of which a student learns from its teachers alone."""

import json
from pathlib import Path

import pytest

from datasets_scripts import Encoding, TaskData, load_task, train_wordpiece
from tests import small_run
from tests.problem_examples import COLUMNS, EXAMPLES
from tests.test_finetune_teacher import train


def write_texts(folder, columns):
    """Write the texts of the validation rows, in another order, without anything else."""
    rows = [row[1 : 1 + len(columns)] for row in small_run.make_rows("dev")]
    small_run.write_tsv(folder / "texts.tsv", columns, reversed(rows))
    return str(folder / "texts.tsv")


def describe(folder, kind="classification", **keys):
    task = {"problem_type": kind} | EXAMPLES[kind].write(folder)
    return task | {"unlabeled_file": write_texts(folder, task["text_columns"])} | keys


def load(keys):
    return load_task(TaskData.from_recipe("own", keys))


# Reading


def test_labels_of_the_file_are_not_read(tmp_path):
    keys = describe(tmp_path)
    plain = load(keys)
    assert plain.unlabeled.column_names == ["id", "sentence1"]
    assert len(plain.unlabeled) == plain.facts["train"]["unlabeled_rows"] == 9
    texts = [text for _, text, *_ in small_run.make_rows("dev")]
    assert plain.unlabeled["sentence1"][:] == texts[::-1]
    assert len(load(keys | {"max_unlabeled_samples": 3}).unlabeled) == 3
    assert plain.training_texts() == [[*plain.splits["train"]["sentence1"][:], *texts[::-1]]]

    rows = [(str(place), text, "", "", "odd") for place, text in enumerate(texts[::-1])]
    small_run.write_tsv(tmp_path / "labels.tsv", COLUMNS, rows)
    named = load(keys | {"unlabeled_file": str(tmp_path / "labels.tsv")})
    assert named.unlabeled["sentence1"][:] == texts[::-1]
    assert named.labels == plain.labels
    assert named.fingerprint == plain.fingerprint
    assert load({**keys, "unlabeled_file": None}).fingerprint != plain.fingerprint


def test_tokens_cut_from_rows_without_labels_count(tmp_path):
    tokenizer = train_wordpiece(["word"] * 9, 200)  # of which it is a token
    keys = describe(tmp_path)
    encoding = Encoding(16)

    def measure():
        rows = load(keys)
        return rows.row_format.cut_share(rows.measured_rows, tokenizer, encoding)

    short = measure()
    texts = ["word " * 200] * 9
    small_run.write_tsv(tmp_path / "texts.tsv", keys["text_columns"], [(one,) for one in texts])
    assert measure() > short + 0.5


def test_rows_without_a_text_are_skipped_and_reported(tmp_path):
    keys = describe(tmp_path, max_invalid_fraction=0.5)
    with Path(keys["unlabeled_file"]).open("a", encoding="utf-8") as file:
        file.write('""\n')
    loaded = load(keys)

    assert len(loaded.unlabeled) == 9
    assert [row.describe(quotes=True) for row in loaded.bad_rows] == [
        f"{keys['unlabeled_file']}:11: empty text in column 'a'"
    ]


def test_other_problem_types_refuse_them(tmp_path):
    kind = "contrastive"
    written = EXAMPLES[kind].write(tmp_path).items()
    known = vars(TaskData)
    task = {"problem_type": kind} | {key: value for key, value in written if key in known}
    with pytest.raises(ValueError, match=f"{kind} tasks have no unlabeled_file"):
        TaskData.from_recipe("own", task | {"unlabeled_file": "texts.tsv"})


# Training


@pytest.fixture(scope="module", params=["classification", "multi_output_classification"])
def student(request, tmp_path_factory):
    """A student of a task of each type; returns its folder, its recipe and its output."""
    folder = tmp_path_factory.mktemp(request.param)
    task = describe(folder, request.param, batch_size=11)
    plain = {key: value for key, value in task.items() if key != "unlabeled_file"}
    recipe = small_run.make_recipe(folder) | {"tasks": {"own": plain}}
    teacher = train(folder, recipe, "teacher", seed=1)
    recipe |= {"tasks": {"own": task}, "teacher": str(teacher), "save_strategy": "epoch"}
    # with the vocabulary of the teacher
    del recipe["model_config"]
    recipe |= {"model_name_or_path": str(teacher), "seed": 2}
    return folder, recipe, train(folder, recipe, "student", save_strategy="epoch")


def read_log(output):
    state = json.loads((output / "checkpoint-6" / "trainer_state.json").read_text())
    return [entry for entry in state["log_history"] if "loss" in entry]


def test_every_row_is_trained_on(student):
    _, _, output = student
    log = read_log(output)
    assert len(log) == 6  # an epoch has 24 rows with a label and 9 without, in batches of 11
    for entry in log:
        mixed = (entry["loss_own"] * 24 / 33 + entry["distillation_own"]) / 2
        assert entry["loss"] == pytest.approx(mixed, rel=1e-3)


def test_a_resumed_student_equals_the_whole_one(student):
    folder, _, output = student

    small_run.assert_resumes(folder / "student.yaml", output, 3)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"distillation_alpha": 0}, "unlabeled_file has no effect with distillation_alpha=0"),
        ({"loss": "cosent"}, "does not go with a loss that compares the labels of a batch"),
    ],
)
def test_what_has_no_effect_is_refused(tmp_path, capsys, keys, message):
    task = describe(tmp_path, "similarity", pair_encoding="separate", score_range=[0, 1])
    if "loss" in keys:
        task["loss"] = keys["loss"]
    recipe = small_run.make_recipe(tmp_path) | {"tasks": {"own": task}, "teacher": "nowhere"}
    recipe |= {key: value for key, value in keys.items() if key != "loss"}
    with pytest.raises(SystemExit):
        train(tmp_path, recipe, "student")
    assert message in capsys.readouterr().err
