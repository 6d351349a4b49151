"""The files of SentEval's transfer tasks, under their original names."""

import codecs
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# Texts of a row and its label, as in the file.
Example = tuple[tuple[str, ...], str]


@dataclass(frozen=True)
class TransferTask:
    """Labelled sentences, or pairs. Splits: ``all``, or ``train``, ``test`` and perhaps ``dev``."""

    name: str
    texts: dict[str, list[tuple[str, ...]]]  # by split
    labels: dict[str, list[int]]  # by split


@dataclass(frozen=True)
class _Source:
    """Where the rows of a task are."""

    files: Mapping[str, tuple[str, ...]]  # by split; the index is the class if lines have none
    read: Callable[[str, int, str], Example]  # parses a line, given that index and its place
    header: int = 0  # number of header lines
    is_old: bool = False  # whether a file may be in Latin-1, as SentEval reads it


def _read_plain(line: str, place: int, where: str) -> Example:  # noqa: ARG001  one signature
    return (line.strip() or ".",), str(place)  # SentEval replaces empty lines by a period


def _read_last_column(line: str, place: int, where: str) -> Example:  # noqa: ARG001
    text, tab, label = line.rpartition("\t")
    if not text.strip() or not tab or not label.strip().isdigit():
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
    if len(columns) != 5 or columns[0] not in ("0", "1") or not all(map(str.strip, columns[3:])):
        raise ValueError(f"{where}: expected Quality, two ids and two sentences, got {line[:60]!r}")
    return (columns[3].strip(), columns[4].strip()), columns[0]


def _two_classes(*files: str) -> _Source:
    """Describe a file of sentences for each class."""
    return _Source({"all": files}, _read_plain, is_old=True)


def _sentiment(folder: str) -> _Source:
    splits = ("train", "dev", "test")
    files = {split: (f"SST/{folder}/sentiment-{split}",) for split in splits}
    return _Source(files, _read_last_column)


SOURCES: dict[str, _Source] = {
    "MR": _two_classes("MR/rt-polarity.neg", "MR/rt-polarity.pos"),
    "CR": _two_classes("CR/custrev.neg", "CR/custrev.pos"),
    "SUBJ": _two_classes("SUBJ/subj.subjective", "SUBJ/subj.objective"),
    "MPQA": _two_classes("MPQA/mpqa.neg", "MPQA/mpqa.pos"),
    "SST2": _sentiment("binary"),
    "SST5": _sentiment("fine"),
    "TREC": _Source(
        {"train": ("TREC/train_5500.label",), "test": ("TREC/TREC_10.label",)},
        _read_question,
        is_old=True,
    ),
    "MRPC": _Source(
        {"train": ("MRPC/msr_paraphrase_train.txt",), "test": ("MRPC/msr_paraphrase_test.txt",)},
        _read_paraphrase,
        header=1,
    ),
}


def missing_files(name: str, folder: Path) -> list[str]:
    """Return the files of a task that a folder lacks; ValueError if the task is unknown."""
    if name not in SOURCES:
        raise ValueError(f"unknown task {name!r}; known: {', '.join(SOURCES)}")
    names = [file for files in SOURCES[name].files.values() for file in files]
    return [file for file in names if not (folder / file).is_file()]


def load_transfer_task(name: str, folder: Path) -> TransferTask:
    """Load a task."""
    if missing := missing_files(name, folder):
        raise ValueError(f"task {name}: {folder / missing[0]} does not exist")
    source = SOURCES[name]
    rows = {split: list(_read_split(source, folder, split)) for split in source.files}
    names = sorted({label for examples in rows.values() for _, label in examples})
    if len(names) < 2 or not all(rows.values()):
        raise ValueError(f"task {name}: {folder} has no rows of two classes in every split")
    texts, classes = {}, {}
    for split, examples in rows.items():
        texts[split] = [row for row, _ in examples]
        classes[split] = [names.index(label) for _, label in examples]
    return TransferTask(name, texts, classes)


def _read_split(source: _Source, folder: Path, split: str) -> Iterator[Example]:
    for index, file in enumerate(source.files[split]):
        for number, line in enumerate(_read_lines(folder / file, source), start=1):
            if number > source.header:
                yield source.read(line, index, f"{folder / file}:{number}")


def _read_lines(path: Path, source: _Source) -> list[str]:
    """Read the lines of a file; copies of old ones are in UTF-8."""
    content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    lines = [line.rstrip(b"\r") for line in content.removesuffix(b"\n").split(b"\n")]
    if not any(map(bytes.strip, lines[source.header :])):
        raise ValueError(f"{path}: the file has no sentences; download it again")
    encoding = _find_encoding(path, lines, may_be_latin=source.is_old)
    return [line.decode(encoding) for line in lines]


def _find_encoding(path: Path, lines: list[bytes], *, may_be_latin: bool) -> str:
    wrong = [number for number, line in enumerate(lines, start=1) if not _is_utf8(line)]
    if not wrong:
        return "utf-8"
    # in a file in Latin-1, no line is also valid UTF-8, except those in ASCII
    if may_be_latin and all(line.isascii() or not _is_utf8(line) for line in lines):
        return "latin-1"
    raise ValueError(f"{path}:{wrong[0]}: not UTF-8; download the file again, or convert it")


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
