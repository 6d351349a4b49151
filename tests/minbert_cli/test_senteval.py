"""Transfer tasks are read as SentEval has them, and measured as scikit-learn alone would."""

from collections import Counter

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from minbert_cli.senteval import FILES, evaluate_similarity, evaluate_transfer

WORDS = ("good", "fine", "bad", "dull", "film", "song", "plot", "end")
GOOD, BAD = ("good", "fine", "film"), ("bad", "dull", "film")


def embed(sentences):
    """Count words, and add a little noise that depends on the sentence."""
    vectors = [[sentence.split().count(word) for word in WORDS] for sentence in sentences]
    noise = [
        np.random.default_rng(len(text) + sum(map(ord, text))).normal(size=8) for text in sentences
    ]
    return torch.tensor(np.array(vectors) + 0.4 * np.array(noise))


def draw(count, seed, moods):
    generator = np.random.default_rng(seed)
    rows = [(generator.choice(WORDS, 2), generator.choice(moods)) for _ in range(count)]
    return [" ".join([*words, mood, mood, str(row)]) for row, (words, mood) in enumerate(rows)]


def write(folder, name, lines, encoding="utf-8"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode(encoding))


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a few rows of every task, in the official names and formats."""
    for name in ("MR", "CR", "SUBJ", "MPQA"):
        negative, positive = FILES[name]
        write(tmp_path, negative, draw(40, 1, BAD))
        write(tmp_path, positive, draw(30, 2, GOOD))
    for file, count in zip(FILES["TREC"], (60, 20), strict=True):
        kinds, moods = ("NUM:dist", "LOC:city", "NUM:date"), (BAD, GOOD, BAD)
        lines = [
            f"{kinds[number % 3]} caf\xe9 {draw(1, number, moods[number % 3])[0]}"
            for number in range(count)
        ]
        write(tmp_path, file, lines, "latin-1")  # as some versions have it
    return tmp_path


def choose(features, labels, powers):
    """Fit with the C that is best in a cross-validation."""
    means = []
    for power in powers:
        model = LogisticRegression(C=2.0**power, max_iter=1000, tol=1e-6)
        parts = StratifiedKFold(4, shuffle=True, random_state=1111).split(features, labels)
        means.append(
            np.mean(
                [
                    model.fit(features[train], labels[train]).score(features[test], labels[test])
                    for train, test in parts
                ]
            )
        )
    best = 2.0 ** powers[int(np.argmax(means))]
    return LogisticRegression(C=best, max_iter=1000, tol=1e-6).fit(features, labels)


def test_a_task_without_test_rows_is_measured_by_a_nested_cross_validation(folder):
    texts = draw(40, 1, BAD) + draw(30, 2, GOOD)
    features, labels = embed(texts).numpy(), np.array([0] * 40 + [1] * 30)
    parts = StratifiedKFold(4, shuffle=True, random_state=1111).split(features, labels)
    expected = [
        choose(features[train], labels[train], range(-2, 4)).score(features[test], labels[test])
        for train, test in parts
    ]

    scores = evaluate_transfer(folder, embed, folds=4)

    assert list(scores) == ["MR", "CR", "SUBJ", "MPQA", "TREC"]
    assert 50 < scores["MR"] < 100
    assert scores["MR"] == pytest.approx(100 * np.mean(expected), abs=1e-6)


def test_trec_is_measured_on_its_test_rows(folder):
    rows = [
        (folder / file).read_text("latin-1").splitlines() for file in FILES["TREC"]
    ]  # COARSE:fine and a question
    (train, classes), (test, asked) = (
        (
            embed([line.partition(" ")[2] for line in lines]).numpy(),
            np.array([line.partition(":")[0] for line in lines]),
        )
        for lines in rows
    )
    texts = []

    def remember(sentences):
        texts.extend(sentences)
        return embed(sentences)

    scores = evaluate_transfer(folder, remember, tasks=["TREC"], folds=4)

    expected = choose(train, classes, range(-1, 6)).score(test, asked)
    assert scores == {"TREC": pytest.approx(100 * expected)}
    assert Counter(classes) == {"NUM": 40, "LOC": 20}
    assert len(texts) == 80
    assert texts[0].startswith("caf\xe9 ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("TREC", b"LOC:city where\nLOC:city \n", r"TREC_10\.label:2: expected COARSE:fine"),
        ("MR", b"\xef\xbb\xbf\n", r"rt-polarity\.pos: the file has no sentences"),
    ],
)
def test_a_wrong_file_is_named_before_the_measurement(folder, name, content, message):
    (folder / FILES[name][1]).write_bytes(content)

    with pytest.raises(ValueError, match=message):
        evaluate_transfer(folder, pytest.fail, tasks=["CR", name], folds=4)


@pytest.mark.parametrize(
    "measure",
    [
        lambda folder, embed: evaluate_transfer(folder, embed, tasks=["CR"], folds=4),
        lambda _, embed: evaluate_similarity([("a", "b"), ("b", "a")], [0, 1], embed),
    ],
)
def test_vectors_that_are_not_finite_are_refused(folder, measure):
    def embed(sentences):
        return torch.tensor([[0.0], *[[float("nan")]] * (len(sentences) - 1)])

    with pytest.raises(ValueError, match="vector 1 has values that are not finite"):
        measure(folder, embed)
