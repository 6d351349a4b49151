"""`TextRows`: the rows of every pass, the same in every process."""

import gc
import multiprocessing
import os
import pickle
import socket
import subprocess
import sys
from collections import Counter
from itertools import pairwise, product
from math import sqrt
from pathlib import Path

import datasets
import numpy as np
import pytest

from datasets_scripts.corpus.rows import KEPT_PASSES
from tests.datasets_scripts.corpus.corpora import draw_documents, read_all, to_rows

PACKINGS = ["segment_pairs", "full_sentences", "doc_sentences"]
CLS, SEP = 2, 3


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where plans are made."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    return tmp_path / "minbert_plans"


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_row_begins_and_ends_with_special_tokens(packing):
    rows = to_rows(draw_documents(0), packing)

    for row in read_all(rows):
        assert (row[0], row[-1]) == (CLS, SEP)
        assert row.count(CLS) == 1
        if packing != "full_sentences":
            assert row.count(SEP) == (2 if packing == "segment_pairs" else 1)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("max_length", [5, 16, 64])
def test_lengths_are_known_before_rows_are_read(packing, max_length):
    rows = to_rows(draw_documents(0, tokens=(1, 40)), packing, max_length)

    for number in range(3):
        lengths = list(map(len, read_all(rows, number)))
        assert rows.count_tokens(number).tolist() == lengths
        assert max(lengths) <= max_length


def test_segments_have_types_and_labels():
    documents = draw_documents(0)
    home = {
        token: n
        for n, document in enumerate(documents)
        for sentence in document
        for token in sentence
    }
    rows = to_rows(documents)

    for number in range(len(rows)):
        row = rows.read(0, np.array([number]))
        ids, types = row["input_ids"].tolist(), row["token_type_ids"].tolist()
        border = ids.index(SEP) + 1
        assert types == [0] * border + [1] * (len(ids) - border)
        a, b = ({home[token] for token in part} for part in (ids[1 : border - 1], ids[border:-1]))
        assert len(a) == len(b) == 1
        assert row["next_sentence_label"].tolist() == [int(a != b)]


def test_packed_rows_have_one_type_and_no_label():
    found = to_rows(draw_documents(0), "full_sentences").read(0, np.arange(5))

    assert set(found) == {"lengths", "input_ids", "token_type_ids"}
    assert not found["token_type_ids"].any()


def test_documents_are_separated_where_they_meet():
    documents = draw_documents(0)
    home = {
        token: n
        for n, document in enumerate(documents)
        for sentence in document
        for token in sentence
    }

    for row in read_all(to_rows(documents, "full_sentences")):
        for token, after in pairwise(row[1:]):
            if SEP not in (token, after):
                assert home[token] == home[after]


@pytest.mark.parametrize("packing", PACKINGS)
def test_all_is_int64(packing):
    rows = to_rows(draw_documents(0), packing)

    found = rows.read(0, np.array([3, 1]))

    assert {array.dtype for array in [*found.values(), rows.count_tokens(0)]} == {np.dtype("int64")}


@pytest.mark.parametrize("packing", PACKINGS)
def test_rows_can_be_read_in_any_order(packing):
    rows = to_rows(draw_documents(0), packing)
    whole = read_all(rows, 1)

    for chosen in ([4], [7, 2, 2, 0], list(range(len(rows)))[::-1]):
        found = rows.read(1, np.array(chosen))
        ids = np.split(found["input_ids"], np.cumsum(found["lengths"])[:-1])
        assert [one.tolist() for one in ids] == [whole[row] for row in chosen]


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_pass_is_a_function_of_seed_and_number(packing):
    documents = draw_documents(0)
    first, second, other = (to_rows(documents, packing, seed=seed) for seed in (1, 1, 2))

    passes = {number: read_all(first, number) for number in (2, 0, 1)}

    for number in (0, 1, 2):
        assert read_all(second, number) == passes[number]
    if packing != "doc_sentences":  # which leave nothing to be drawn
        assert passes[0] != passes[1] != passes[2]
        assert read_all(other) != passes[0]


@pytest.mark.parametrize("packing", PACKINGS)
def test_every_pass_has_as_many_rows(packing):
    surplus = set()
    for seed, number in product(range(4), range(5)):
        rows = to_rows(draw_documents(seed), packing)
        plan = rows.plans.open(number)
        planned, used = len(plan.lengths), Counter(plan.rows.tolist())

        assert len(rows.count_tokens(number)) == len(rows)
        if planned > len(rows):
            assert max(used.values()) == 1
        else:
            assert set(used) == set(range(planned))
            twice = [row for row, times in used.items() if times > 1]
            assert twice == list(range(len(rows) - planned))
        surplus.add(planned - len(rows))
    if packing == "segment_pairs":
        assert min(surplus) < 0 < max(surplus)  # both happened


def test_balanced_pairs_are_balanced_though_lonely_sentences_come_last():
    documents = draw_documents(0, documents=200) + draw_documents(1, 200, sentences=(1, 1))

    plain, balanced = (to_rows(documents, balanced_pairs=value) for value in (False, True))

    assert plain.describe()["random_share"] > 0.6
    share = balanced.describe()["random_share"]
    assert abs(share - 0.5) < 3 * 0.5 / sqrt(len(balanced))
    labels = balanced.read(0, np.arange(len(balanced)))["next_sentence_label"]
    assert labels.mean() == pytest.approx(share)


def test_rows_describe_the_text():
    documents = draw_documents(0, tokens=(1, 40))
    sentences = [sentence for document in documents for sentence in document]

    facts = to_rows(documents, max_length=32).describe()

    assert facts.pop("rows") > 30
    assert 0.5 < facts.pop("random_share") < 1
    assert facts == {
        "documents": 30,
        "empty_documents": 0,
        "sentences": len(sentences),
        "cut_sentences": sum(len(sentence) > 29 for sentence in sentences),
        "tokens": sum(map(len, sentences)),
    }
    assert "random_share" not in to_rows(documents, "doc_sentences").describe()


# Other processes


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_pickled_copy_reads_the_same_rows(packing, folder):
    rows = to_rows(draw_documents(0), packing)

    copy = pickle.loads(pickle.dumps(rows))  # noqa: S301  (our own object)

    assert len(copy) == len(rows)
    for number in (0, 1, 3):
        assert read_all(copy, number) == read_all(rows, number)
    assert len(list(folder.iterdir())) == 1  # nothing was planned twice


def test_a_copy_outlives_the_files(folder):
    rows = to_rows(draw_documents(0))
    expected = [read_all(rows, number) for number in (0, 1)]
    copy = pickle.loads(pickle.dumps(rows))  # noqa: S301  (our own object)

    del rows
    gc.collect()

    assert list(folder.iterdir()) == []
    assert [read_all(copy, number) for number in (0, 1)] == expected


def read_in_worker(rows, number, queue):
    queue.put(read_all(rows, number))
    del rows
    gc.collect()


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_worker_reads_the_same_rows_and_leaves_the_files(method, folder):
    context = multiprocessing.get_context(method)
    rows = to_rows(draw_documents(0))
    queue = context.Queue()

    worker = context.Process(target=read_in_worker, args=(rows, 1, queue))
    worker.start()
    found = queue.get()
    worker.join()

    assert worker.exitcode == 0
    assert found == read_all(rows, 1)
    assert len(list(folder.iterdir())) == 1


def test_a_forked_process_does_not_take_the_files_with_it(folder):
    rows = to_rows(draw_documents(0))

    child = os.fork()
    if child == 0:
        del rows
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)

    assert len(list(folder.iterdir())) == 1


def test_the_files_of_the_last_passes_are_kept(folder):
    rows = to_rows(draw_documents(0))

    for number in range(5):
        rows.count_tokens(number)
        stored = list(folder.glob("*/pass-*"))
        assert len(stored) <= KEPT_PASSES
        assert any(path.name == f"pass-{number}" for path in stored)


def test_the_files_go_with_the_rows(folder):
    rows = to_rows(draw_documents(0))
    assert list(folder.iterdir()) != []

    del rows
    gc.collect()

    assert list(folder.iterdir()) == []


def test_a_plan_that_vanished_is_made_again(folder):
    rows = to_rows(draw_documents(0))
    expected = read_all(rows, 1)
    copy = pickle.loads(pickle.dumps(rows))  # noqa: S301  (our own object)
    for path in Path(folder).glob("*/pass-1/*"):
        path.unlink()
    for path in Path(folder).glob("*/pass-1"):
        path.rmdir()

    assert read_all(copy, 1) == expected


# What is refused


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"packing": "pairs"},
            "mine: unknown packing 'pairs'; .*known: segment_pairs, full_sentences, doc",
        ),
        ({"max_length": 4}, "mine: max_length=4; segment_pairs needs 5 or more"),
        ({"max_length": 2, "packing": "doc_sentences"}, "doc_sentences needs 3 or more"),
        ({"short_seq_prob": 1.5}, r"mine: short_seq_prob=1\.5 must be in \[0, 1\]"),
    ],
)
def test_settings_out_of_range_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        to_rows(draw_documents(0), **settings)


def test_pairs_of_one_document_are_refused():
    with pytest.raises(
        ValueError,
        match=r"mine: 1 document in split 'train', .* 'documents' .* masked tokens alone",
    ):
        to_rows(draw_documents(0, documents=1))
    assert len(to_rows(draw_documents(0, documents=1), "full_sentences")) > 0


def test_what_a_killed_process_left_is_removed(folder):
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1, check=True
    )
    left, alive = (f"{socket.gethostname()}-{pid}-x" for pid in (int(done.stdout), os.getpid()))
    for name in (left, alive):
        (folder / name).mkdir(parents=True)

    to_rows(draw_documents(0))

    assert not (folder / left).exists()
    assert (folder / alive).exists()
