"""minbert embeddings: from files to a table."""

import random

import pytest
import torch

from datasets_scripts import TaskData, load_task
from minbert_cli import __main__ as minbert
from modeling_minbert import MinBertConfig, MinBertForMultiTask
from tests import small_run

GOOD, BAD = ("fine", "warm", "lovely"), ("dull", "cold", "bleak")
THINGS = ("garden", "river", "story")
WORDS = [*GOOD, *BAD, *THINGS, "the", "is"]


def make_sentences(words, count, seed):
    """Make sentences of words that determine their class."""
    draw = random.Random(seed)
    return [f"the {draw.choice(THINGS)} is {draw.choice(words)}" for _ in range(count)]


@pytest.fixture
def checkpoint(tiny_sizes, tmp_path):
    """Return the folder of an encoder with a task of pairs."""
    torch.manual_seed(0)
    tasks = {"near": {"problem_type": "similarity", "pair_encoding": "separate"}}
    tasks["near"]["score_range"] = [0, 5]
    folder = tmp_path / "own"
    MinBertForMultiTask(MinBertConfig(**tiny_sizes, tasks=tasks)).save_pretrained(folder)
    small_run.make_tokenizer(WORDS).save_pretrained(folder)
    return folder


@pytest.fixture
def data(tmp_path):
    """Return a folder with two transfer tasks of SentEval and the files of STS."""
    folder = tmp_path / "data"
    for task, names in {"CR": ("custrev.neg", "custrev.pos"), "TREC": ()}.items():
        (folder / task).mkdir(parents=True)
        for name, words in zip(names, (BAD, GOOD), strict=False):
            (folder / task / name).write_text("\n".join(make_sentences(words, 30, name)) + "\n")
    for name, count in {"train_5500.label": 20, "TREC_10.label": 8}.items():
        rows = [
            f"{label}:one {text}"
            for label, words in (("MOOD", GOOD), ("PAIN", BAD))
            for text in make_sentences(words, count, name)
        ]
        (folder / "TREC" / name).write_text("\n".join(rows) + "\n")
    for split in ("train", "dev"):
        pairs = zip(make_sentences(GOOD, 30, split), make_sentences(BAD + GOOD, 30, 1), strict=True)
        rows = [f"{n}\t{n}x\t{a}\t{b}\t{n % 6}.0" for n, (a, b) in enumerate(pairs)]
        header = "\tid\tsentence1\tsentence2\tsimilarity"
        (folder / f"sts-{split}.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder


def measure(checkpoint, data, capsys, *more):
    """Return the row of a checkpoint in the printed table, and what else was said."""
    flags = ["--data_dir", str(data), "--sts", "sts", "--sts_dir", str(data)]
    minbert.main(["embeddings", str(checkpoint), *flags, *more])
    said = capsys.readouterr()
    names, _, row = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in said.out.splitlines()
    )
    return dict(zip(names, row, strict=True)), said.err


def test_a_row_for_each_checkpoint_and_a_column_for_each_task(checkpoint, data, capsys):
    from scipy.stats import spearmanr

    row, errors = measure(checkpoint, data, capsys, "--task", "near")

    assert row["vectors of"] == str(checkpoint)
    assert float(row["CR"]) > 75  # the words separate the classes
    assert f"MR: skipped, there is no {data}" in errors
    scores = [float(row[name]) for name in ("CR", "TREC")]
    assert float(row["mean accuracy"]) == pytest.approx(sum(scores) / 2, abs=0.01)
    model = MinBertForMultiTask.from_pretrained(checkpoint).eval()
    rows = load_task(TaskData.from_recipe("sts", {"dataset": "sts"}, data)).splits["validation"]
    first, second = (model.encode(rows[f"sentence{n}"][:], task="near") for n in (1, 2))
    cosines = torch.cosine_similarity(first, second).numpy()
    expected = 100 * spearmanr(cosines, rows["label"][:]).statistic
    assert float(row["sts validation spearman"]) == pytest.approx(expected, abs=0.01)


def test_a_folder_without_any_file_is_refused(checkpoint, capsys):
    with pytest.raises(SystemExit, match="1"):
        minbert.main(["embeddings", str(checkpoint), "--data_dir", "nowhere"])

    assert "data_dir='nowhere' has the files of none of" in capsys.readouterr().err
