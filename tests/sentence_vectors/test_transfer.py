"""Transfer tasks are read as SentEval has them, and measured as scikit-learn alone would."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score

from sentence_vectors import evaluate_similarity, evaluate_transfer, load_senteval_task
from sentence_vectors.senteval import FILES, missing_files

REAL = Path(os.environ.get("SENTEVAL_DIR", "senteval"))
WORDS = ("good", "fine", "bad", "dull", "film", "song", "plot", "end")


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
    good, bad = ("good", "fine", "film"), ("bad", "dull", "film")
    for name in ("MR", "CR", "SUBJ", "MPQA"):
        negative, positive = FILES[name]["all"]
        write(tmp_path, negative, draw(40, 1, bad))
        write(tmp_path, positive, draw(30, 2, good))
    for kind, classes in (("binary", 2), ("fine", 3)):
        for split, count in (("train", 60), ("dev", 20), ("test", 25)):
            moods = (bad, good, ("film",))
            lines = [
                f"{draw(1, number, moods[number % classes])[0]}\t{number % classes}"
                for number in range(count)
            ]
            write(tmp_path, f"SST/{kind}/sentiment-{split}", lines)
    for file, count in (("train_5500", 60), ("TREC_10", 20)):
        kinds = ("NUM:dist", "LOC:city", "NUM:date")
        moods = (bad, good, bad)
        lines = [
            f"{kinds[number % 3]} caf\xe9 {draw(1, number, moods[number % 3])[0]}"
            for number in range(count)
        ]
        write(tmp_path, f"TREC/{file}.label", lines, "latin-1")  # as SentEval has it
    for split, count in (("train", 60), ("test", 20)):
        lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        for number in range(count):
            first = draw(1, number, good)[0]
            second = first + " end" if number % 3 else draw(1, number + 99, bad)[0]
            lines.append(f'{int(number % 3 > 0)}\t{number}\t{number}\t"{first}\t{second}')
        write(tmp_path, f"MRPC/msr_paraphrase_{split}.txt", lines)
    return tmp_path


def test_every_task_has_its_rows_and_classes(folder):
    tasks = {name: load_senteval_task(name, folder, 4) for name in FILES}

    sizes = {
        name: {split: len(rows) for split, rows in task.texts.items()}
        for name, task in tasks.items()
    }
    assert sizes["MR"] == sizes["CR"] == sizes["SUBJ"] == sizes["MPQA"] == {"all": 70}
    assert sizes["SST2"] == sizes["SST5"] == {"train": 60, "dev": 20, "test": 25}
    assert sizes["TREC"] == sizes["MRPC"] == {"train": 60, "test": 20}
    assert tasks["MR"].labels["all"] == [0] * 40 + [1] * 30
    assert tasks["TREC"].labels["test"][:3] == [1, 0, 1]  # LOC, NUM
    assert tasks["TREC"].texts["test"][0][0].startswith("caf\xe9 ")
    assert tasks["MRPC"].labels["train"][:4] == [0, 1, 1, 0]
    assert tasks["MRPC"].texts["train"][1][0].startswith('"')  # a quote is a character


def test_folds_with_nested_choice_equal_scikit_learn(folder):
    task = load_senteval_task("MR", folder)
    features, labels = embed([text for (text,) in task.texts["all"]]).numpy(), task.labels["all"]
    outer = StratifiedKFold(4, shuffle=True, random_state=1111)
    choice = GridSearchCV(
        LogisticRegression(max_iter=1000, tol=1e-6),
        {"C": [2.0**power for power in range(-2, 4)]},
        cv=StratifiedKFold(4, shuffle=True, random_state=1111),
    )

    score = evaluate_transfer(task, embed, folds=4)

    expected = 100 * cross_val_score(choice, features, labels, cv=outer).mean()
    assert 50 < expected < 100
    assert score == {"MR": pytest.approx(expected, abs=1e-6)}


def test_pairs_are_compared_by_difference_and_product(folder):
    task = load_senteval_task("MRPC", folder)
    features = {}
    for split, rows in task.texts.items():
        u, v = (embed(texts).numpy() for texts in zip(*rows, strict=True))
        features[split] = np.hstack([np.abs(u - v), u * v])
    model = GridSearchCV(
        LogisticRegression(max_iter=1000),
        {"C": [2.0**power for power in range(-1, 6)]},
        cv=StratifiedKFold(4, shuffle=True, random_state=1111),
    ).fit(features["train"], task.labels["train"])

    score = evaluate_transfer(task, embed, folds=4)

    classes = model.predict(features["test"])
    assert score["MRPC"] == pytest.approx(100 * np.mean(classes == task.labels["test"]))
    assert score["MRPC F1"] == pytest.approx(100 * f1_score(task.labels["test"], classes))


def test_development_rows_choose_where_there_are_some(folder):
    task = load_senteval_task("SST5", folder)
    features = {
        split: embed([text for (text,) in rows]).numpy() for split, rows in task.texts.items()
    }
    models = [
        LogisticRegression(C=2.0**power, max_iter=1000).fit(features["train"], task.labels["train"])
        for power in range(-2, 4)
    ]
    best = max(models, key=lambda model: model.score(features["dev"], task.labels["dev"]))

    score = evaluate_transfer(task, embed)

    assert score["SST5"] == pytest.approx(100 * best.score(features["test"], task.labels["test"]))


def test_similarity_is_the_rank_correlation_of_cosines():
    pairs = list(zip(draw(40, 1, WORDS), draw(40, 2, WORDS), strict=True))
    scores = np.random.default_rng(3).random(40).tolist()

    found = evaluate_similarity(pairs, scores, embed)

    first, second = (embed(texts) for texts in zip(*pairs, strict=True))
    cosines = torch.cosine_similarity(first, second)
    assert found["spearman"] == pytest.approx(100 * spearmanr(cosines, scores).statistic)
    assert found["pearson"] == pytest.approx(100 * np.corrcoef(cosines, scores)[0, 1])


def test_a_constant_has_no_correlation():
    with pytest.warns(UserWarning, match="counts as 0"):
        found = evaluate_similarity([("a", "b"), ("c", "d")], [1, 1], embed)

    assert found == {"spearman": 0.0, "pearson": 0.0}


@pytest.mark.parametrize(
    ("name", "file", "line", "message"),
    [
        ("TREC", "TREC/TREC_10.label", "what is it", r"TREC_10\.label:1: expected COARSE:fine"),
        ("SST2", "SST/binary/sentiment-dev", "a film", "sentiment-dev:1: expected a sentence"),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", "x\n1\ta", r"test\.txt:2: expected Quality"),
        ("MR", "MR/rt-polarity.neg", None, r"rt-polarity\.neg does not exist"),
        ("STS", "STS", "", "unknown task 'STS'; known: MR, CR"),
    ],
)
def test_a_wrong_file_is_named(folder, name, file, line, message):
    if line is None:
        (folder / file).unlink()
    else:
        write(folder, file, [line])

    with pytest.raises(ValueError, match=message):
        load_senteval_task(name, folder, 4)


def test_missing_files_are_listed(folder):
    (folder / "CR/custrev.pos").unlink()

    assert missing_files("CR", folder) == ["CR/custrev.pos"]
    assert missing_files("MR", folder) == []


@pytest.mark.realdata
def test_the_official_files_have_their_rows():
    if not REAL.is_dir():
        pytest.skip("set SENTEVAL_DIR to the folder with the tasks of SentEval")
    sizes = {"MR": 10_662, "CR": 3_775, "SUBJ": 10_000}

    for name, size in sizes.items():
        assert len(load_senteval_task(name, REAL).texts["all"]) == size
    trec = load_senteval_task("TREC", REAL)
    assert {split: len(rows) for split, rows in trec.texts.items()} == {"train": 5_452, "test": 500}
    assert len(set(trec.labels["train"])) == 6


@pytest.mark.parametrize("content", [b"", b"\n", b"\n \n\r\n", b"\xef\xbb\xbf"])
def test_a_class_without_sentences_is_an_error(folder, content):
    (folder / "MR/rt-polarity.pos").write_bytes(content)

    with pytest.raises(ValueError, match=r"rt-polarity\.pos: the file has no sentences"):
        load_senteval_task("MR", folder)


def test_a_file_with_a_header_alone_is_an_error(folder):
    write(folder, "MRPC/msr_paraphrase_test.txt", ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"])

    with pytest.raises(ValueError, match=r"paraphrase_test\.txt: the file has no sentences"):
        load_senteval_task("MRPC", folder)


@pytest.mark.parametrize(
    ("task", "file", "lines", "line"),
    [
        ("MR", "MR/rt-polarity.neg", [b"one", "caf\xe9".encode(), b"caf\xe9", b"\xff"], 3),
        ("TREC", "TREC/TREC_10.label", ["A:b caf\xe9".encode(), b"A:b \xc3"], 2),
        ("SST2", "SST/binary/sentiment-dev", [b"one\t0", b"caf\xe9\t1"], 2),
        ("MRPC", "MRPC/msr_paraphrase_train.txt", [b"Quality", b"1\ta\tb\tc\td\xe9"], 2),
    ],
)
def test_damaged_utf_8_is_named_by_file_and_line(folder, task, file, lines, line):
    (folder / file).write_bytes(b"\n".join(lines) + b"\n")

    with pytest.raises(ValueError, match=rf"{file}:{line}: not UTF-8; download the file again"):
        load_senteval_task(task, folder)


@pytest.mark.parametrize(
    ("task", "file", "row"),
    [
        ("SST2", "SST/binary/sentiment-dev", " \t1"),
        ("MRPC", "MRPC/msr_paraphrase_test.txt", "1\ta\tb\tc\t "),
        ("TREC", "TREC/TREC_10.label", "LOC:city "),
    ],
)
def test_a_row_without_a_sentence_is_named(folder, task, file, row):
    with (folder / file).open("a") as rows:
        rows.write(row + "\n")

    with pytest.raises(ValueError, match=rf"{file}:\d+: expected "):
        load_senteval_task(task, folder)


@pytest.mark.parametrize(
    ("name", "folds", "is_refused"),
    [
        ("MR", 40, True),
        ("MR", 39, True),
        ("MR", 10, False),
        ("TREC", 41, True),
        ("SST2", 99, False),
    ],
)
def test_too_few_rows_for_the_folds_are_refused_before_the_measurement(
    folder, name, folds, is_refused
):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns about small classes
        if is_refused:
            with pytest.raises(ValueError, match=f"task {name}: the largest class has 40 rows"):
                load_senteval_task(name, folder, folds)
        else:
            load_senteval_task(name, folder, folds)
