"""The files of the transfer tasks of SentEval, under their names there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

# Texts of a row, and its label as the file has it.
Example = tuple[tuple[str, ...], str]


@dataclass(frozen=True)
class TransferTask:
    """Labelled sentences, or pairs of them.

    Args:
        name: Name of the task.
        texts: By split the texts of every row, one or two.
        labels: By split the class of every row.

    The splits are ``all`` where there are no official ones, else ``train`` and ``test``, and for
    some ``dev``.
    """

    name: str
    texts: dict[str, list[tuple[str, ...]]]
    labels: dict[str, list[int]]


@dataclass(frozen=True)
class _Source:
    """Where the rows of a task are.

    Args:
        files: By split the files, whose place is the class where lines have none.
        read: Reads a line, given its class and the place for a message.
        header: Lines to leave out at the beginning.
    """

    files: Mapping[str, tuple[str, ...]]
    read: Callable[[str, int, str], Example]
    header: int = 0


def _read_plain(line: str, place: int, where: str) -> Example:  # noqa: ARG001  as the others
    return (line.strip() or ".",), str(place)  # SentEval puts a full stop for no words


def _read_last_column(line: str, place: int, where: str) -> Example:  # noqa: ARG001
    text, tab, label = line.rpartition("\t")
    if not tab or not label.strip().isdigit():
        raise ValueError(f"{where}: expected a sentence, a tab and a class, got {line[:60]!r}")
    return (text.strip(),), label.strip()


def _read_question(line: str, place: int, where: str) -> Example:  # noqa: ARG001
    label, space, text = line.strip().partition(" ")
    coarse, colon, _ = label.partition(":")
    if not space or not colon:
        raise ValueError(f"{where}: expected COARSE:fine and a question, got {line[:60]!r}")
    return (text,), coarse


def _read_paraphrase(line: str, place: int, where: str) -> Example:  # noqa: ARG001
    columns = line.split("\t")
    if len(columns) != 5 or columns[0] not in ("0", "1"):
        raise ValueError(f"{where}: expected Quality, two ids and two sentences, got {line[:60]!r}")
    return (columns[3].strip(), columns[4].strip()), columns[0]


def _sentiment(folder: str) -> _Source:
    splits = ("train", "dev", "test")
    files = {split: (f"SST/{folder}/sentiment-{split}",) for split in splits}
    return _Source(files, _read_last_column)


SOURCES: dict[str, _Source] = {
    "MR": _Source({"all": ("MR/rt-polarity.neg", "MR/rt-polarity.pos")}, _read_plain),
    "CR": _Source({"all": ("CR/custrev.neg", "CR/custrev.pos")}, _read_plain),
    "SUBJ": _Source({"all": ("SUBJ/subj.subjective", "SUBJ/subj.objective")}, _read_plain),
    "MPQA": _Source({"all": ("MPQA/mpqa.neg", "MPQA/mpqa.pos")}, _read_plain),
    "SST2": _sentiment("binary"),
    "SST5": _sentiment("fine"),
    "TREC": _Source(
        {"train": ("TREC/train_5500.label",), "test": ("TREC/TREC_10.label",)}, _read_question
    ),
    "MRPC": _Source(
        {
            "train": ("MRPC/msr_paraphrase_train.txt",),
            "test": ("MRPC/msr_paraphrase_test.txt",),
        },
        _read_paraphrase,
        header=1,
    ),
}


def missing_files(name: str, folder: Path) -> list[str]:
    """List the files of a task that are not in a folder.

    Raises:
        ValueError: If there is no such task.
    """
    if name not in SOURCES:
        raise ValueError(f"unknown task {name!r}; known tasks: {', '.join(SOURCES)}")
    names = [file for files in SOURCES[name].files.values() for file in files]
    return [file for file in names if not (folder / file).is_file()]


def load_transfer_task(name: str, folder: Path) -> TransferTask:
    """Read a task.

    Args:
        name: A key of ``SOURCES``.
        folder: Folder with the folders of the tasks.

    Raises:
        ValueError: If there is no such task, a file is not there, or a line is not as expected.
    """
    if missing := missing_files(name, folder):
        raise ValueError(f"task {name}: {folder / missing[0]} is not there")
    source = SOURCES[name]
    rows = {
        split: [
            source.read(line, place, f"{folder / file}:{number}")
            for place, file in enumerate(files)
            for number, line in enumerate(_read_lines(folder / file), start=1)
            if number > source.header
        ]
        for split, files in source.files.items()
    }
    names = sorted({label for found in rows.values() for _, label in found})
    if len(names) < 2 or not all(rows.values()):
        raise ValueError(f"task {name}: {folder} has no rows of two classes in every split")
    return TransferTask(
        name,
        {split: [texts for texts, _ in found] for split, found in rows.items()},
        {split: [names.index(label) for _, label in found] for split, found in rows.items()},
    )


def _read_lines(path: Path) -> list[str]:
    """Read lines; SentEval's own files are in Latin-1, copies of them in UTF-8."""
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
