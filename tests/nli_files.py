"""Files of SNLI and MultiNLI with a few rows of our own, in the official names and formats."""

from tests.small_run import write_jsonl

LABELS = ("contradiction", "entailment", "neutral")
ENDINGS = ("nobody walks", "somebody walks", "somebody walks home")


def write_rows(path, rows, extra=()):
    """Write rows of the three classes in turn, and then rows with other labels."""
    gold = [LABELS[number % 3] for number in range(rows)] + list(extra)
    lines = [
        {
            "gold_label": label,
            "pairID": f"{number}n",
            "annotator_labels": [label],
            "sentence1": f"person {number} goes for a walk",
            "sentence2": ENDINGS[number % 3],
        }
        for number, label in enumerate(gold)
    ]
    write_jsonl(path, lines)


def write_snli(folder, rows=12, undecided=0):
    """Write the three files of SNLI, with that many rows without agreement in each."""
    for split in ("train", "dev", "test"):
        write_rows(folder / f"snli_1.0_{split}.jsonl", rows, ["-"] * undecided)
    return folder


def write_multi_nli(folder, rows=12):
    """Write the three files of MultiNLI."""
    for split in ("train", "dev_matched", "dev_mismatched"):
        write_rows(folder / f"multinli_1.0_{split}.jsonl", rows, ["-"])
    return folder
