"""A folder of GLUE with a few rows of our own in the official file names and formats."""

import random

from tests.small_run import BAD, GOOD, THINGS

WORDS = {"good": GOOD, "bad": BAD}
ROWS = {"train": 24, "dev": 9, "test": 5}
FOLDERS = ("CoLA", "SST-2", "MRPC", "QQP", "STS-B", "MNLI", "QNLI", "RTE", "WNLI")
NLI = ("entailment", "neutral", "contradiction")
# names of the columns that are not read, as the official files have them
PARSES = tuple(f"sentence{n}_{kind}" for kind in ("binary_parse", "parse") for n in (1, 2))
STSB_HEAD = ("index", "genre", "filename", "year", "old_index", "source1", "source2")
QUOTE = '"'


def make_rows(name, count):
    """Make rows: (sentence, another one, is the mood the same, is the first one good)."""
    generator = random.Random(name)
    for number in range(count):
        first, second = (generator.choice(list(WORDS)) for _ in "ab")
        thing = generator.choice(THINGS)
        # a quote that is never closed: quoting is off in these files
        quote = QUOTE if number % 3 == 0 else ""
        yield (
            f"{quote}the {thing} is {generator.choice(WORDS[first])}",
            f"this {thing} was {generator.choice(WORDS[second])}",
            first == second,
            first == "good",
        )


def write(path, rows):
    """Write a file with a line for each row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")


def write_glue(folder):
    """Write all tasks, test files included; returns the folder."""
    for split, count in ROWS.items():
        for name in FOLDERS:
            if name != "MNLI":
                rows = list(make_rows(f"{name} {split}", count))
                write(folder / name / f"{split}.tsv", FORMATS[name](rows, split == "test"))
        for part in ("matched", "mismatched") if split != "train" else ("",):
            rows = list(make_rows(f"MNLI {split} {part}", count + (part == "mismatched")))
            path = folder / "MNLI" / ("_".join(filter(None, (split, part))) + ".tsv")
            write(path, mnli(rows, split))
    return folder


def cola(rows, is_test):
    """Write no names of columns above rows with labels, but above those without."""
    if is_test:
        return [("index", "sentence"), *((number, row[0]) for number, row in enumerate(rows))]
    return [("gj04", int(row[3]), "" if row[3] else "*", row[0]) for row in rows]


def sst2(rows, is_test):
    """Write an index above test rows alone."""
    if is_test:
        return cola(rows, is_test)
    return [("sentence", "label"), *((row[0], int(row[3])) for row in rows)]


def mrpc(rows, is_test):
    """Write the label, or the index, first."""
    first = ("index", "Quality")[not is_test]
    head = (first, "#1 ID", "#2 ID", "#1 String", "#2 String")
    made = [
        (number if is_test else int(row[2]), 70 + number, 90 + number, row[0], row[1])
        for number, row in enumerate(rows)
    ]
    return [head, *made]


def qqp(rows, is_test):
    """Write ids that are no row numbers, but for test rows."""
    if is_test:
        made = [(number, row[0], row[1]) for number, row in enumerate(rows)]
        return [("id", "question1", "question2"), *made]
    made = [
        (1000 + number, number, number + 1, row[0], row[1], int(row[2]))
        for number, row in enumerate(rows)
    ]
    return [("id", "qid1", "qid2", "question1", "question2", "is_duplicate"), *made]


def stsb(rows, is_test):
    """Write scores with three decimals."""
    head = (*STSB_HEAD, "sentence1", "sentence2", *(() if is_test else ("score",)))
    made = [
        (number, "g", "f", "2012", "0001", "none", "none", row[0], row[1])
        + (() if is_test else (f"{1 + 3 * row[2] + number % 4 / 4:.3f}",))
        for number, row in enumerate(rows)
    ]
    return [head, *made]


def mnli(rows, split):
    """Write the parses beside the sentences, and of dev rows the labels of all five annotators."""
    annotators = {"train": 1, "dev": 5, "test": 0}[split]
    labels = tuple(f"label{number}" for number in range(1, annotators + 1))
    gold = () if split == "test" else ("gold_label",)
    head = ("index", "promptID", "pairID", "genre", *PARSES, "sentence1", "sentence2")
    made = []
    for number, row in enumerate(rows):
        label = NLI[number % 3]
        answers = (label,) * (annotators + len(gold))
        made.append((number, "1", "1n", "fiction", *"()()", row[0], row[1], *answers))
    return [(*head, *labels, *gold), *made]


def pairs(rows, is_test, names=("sentence1", "sentence2"), labels=("not_entailment", "entailment")):
    """Write index, two sentences, and the label."""
    made = [
        (number, row[0], row[1], *(() if is_test else (labels[row[2]],)))
        for number, row in enumerate(rows)
    ]
    return [("index", *names, *(() if is_test else ("label",))), *made]


FORMATS = {
    "CoLA": cola,
    "SST-2": sst2,
    "MRPC": mrpc,
    "QQP": qqp,
    "STS-B": stsb,
    "QNLI": lambda rows, is_test: pairs(rows, is_test, ("question", "sentence")),
    "RTE": pairs,
    "WNLI": lambda rows, is_test: pairs(rows, is_test, labels=(0, 1)),
}
