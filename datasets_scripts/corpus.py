"""Text for pretraining: its keys in a recipe, and its documents, held out and tokenized on disk.

Plain text is read by this module and not by `datasets`, which fails at the first byte that is not
UTF-8, does not take a line of white space for a blank one, and reads a document of any size at
once. Here an invalid document has a place and a reason, the others are used, and memory is bounded.
"""

import codecs
import glob
import hashlib
import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import chain, count, islice
from math import ceil, inf
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from filelock import FileLock
from numpy.typing import NDArray
from sentencex import segment
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from modeling_minbert import unknown
from modeling_minbert.pieces import find_space

from .catalog import DATASETS, read_sample
from .checking import INNER, Count, Fraction, Share, Text, check_keys, check_revision, option
from .hub import HUB_NAMES, find_commit, match_splits, open_hub, readable_hub
from .loading import (
    InvalidRow,
    check_invalid_fraction,
    hash_sources,
    load_task,
    log_invalid_rows,
    show_progress,
)
from .readers import (
    FileFormat,
    Record,
    check_file,
    find_suffix,
    open_bytes,
    read_lines,
    read_records,
    shorten,
)
from .row_format import make_features
from .task_data import TaskData

logger = logging.getLogger(__name__)

SAMPLE_TEXT = "sample_text"
HELD_OUT_SHARE = 0.05
BUILT_IN = (SAMPLE_TEXT, *DATASETS)
FILE_KEYS = ("train_file", "validation_file")
# Keys of every source, of every source of running text, and of each source.
SHARED_KEYS = ("max_documents", "max_invalid_fraction")
TEXT_KEYS = ("text_column", "sentences", "validation_share")
SOURCE_KEYS = {
    "dataset": ("dataset", "data_dir", *SHARED_KEYS),
    "hub_id": ("dataset", "hub_id", "revision", "streaming", *TEXT_KEYS, *SHARED_KEYS),
    "train_file": (*FILE_KEYS, "data_dir", "documents", *TEXT_KEYS, *SHARED_KEYS),
}


def to_patterns(value: object) -> tuple[str, ...]:
    """Check a path or a pattern of paths, or a list of them."""
    patterns = value if isinstance(value, list | tuple) else (value,)
    if not patterns or not all(isinstance(item, str | Path) and str(item) for item in patterns):
        raise ValueError("expected a path, a pattern or a list of them")
    return tuple(map(str, patterns))


Patterns = Annotated[tuple[str, ...], to_patterns]


@dataclass(frozen=True)
class CorpusData:
    """A text for pretraining; ``from_recipe`` makes it from the keys of a recipe.

    The fields are these keys, and "Corpus" in docs/reference/recipes.md describes them.
    """

    name: str = field(metadata=INNER)
    dataset: Text | None = option(None)
    data_dir: Text | None = option(None)
    hub_id: Text | None = option(None)
    revision: Text | None = option(None)
    train_file: Patterns | None = option(None)
    validation_file: Patterns | None = option(None)
    validation_share: Share | None = option(None)
    text_column: Text = option("text")
    documents: Literal["blank_line", "file", "line"] = option("blank_line")
    sentences: Literal["split", "line"] = option("split")
    streaming: bool = option(False)
    max_documents: Count | None = option(None)
    max_invalid_fraction: Fraction = option(0.01)

    @classmethod
    def from_recipe(
        cls, name: str, mapping: Any, data_dir: str | Path | None = None
    ) -> "CorpusData":
        """Check the keys of a corpus and complete them from its source.

        Arguments and errors are those of `TaskData.from_recipe`.
        """
        where = f"corpus {name!r}"
        (keys,) = check_keys(where, mapping, cls)
        given = {key: value for key, value in keys.items() if value is not None}
        data = cls(name, **given)
        sources = [key for key in SOURCE_KEYS if key in given]
        if len(sources) != 1 or ("validation_file" in given and data.train_file is None):
            sources += ["validation_file"] if "validation_file" in given else []
            raise ValueError(
                f"{where}: give exactly one source of text, 'dataset' (built-in or owner/name), "
                f"'hub_id' or 'train_file'; given: {', '.join(sources) or 'none'}"
            )
        if data.dataset is not None and data.dataset not in BUILT_IN:
            if "/" not in data.dataset:
                raise ValueError(
                    f"{where}: {unknown('dataset', data.dataset, BUILT_IN)} (a dataset of the Hub "
                    "is written owner/name)"
                )
            sources, data = ["hub_id"], replace(data, hub_id=data.dataset)
        allowed = SOURCE_KEYS[sources[0]]
        if useless := sorted(set(given) - set(allowed)):
            raise ValueError(
                f"{where}: {', '.join(useless)} has no effect for {data.source!r}; remove it "
                f"(keys of such a source: {', '.join(allowed)})"
            )
        if data.validation_file is not None and data.validation_share is not None:
            raise ValueError(
                f"{where}: validation_share={data.validation_share:g} has no effect with "
                "validation_file; remove one of them"
            )
        if data.hub_id is not None:
            check_revision(where, data.revision, data.hub_id)
            return data
        return data._find_folder(None if data_dir is None else str(data_dir))

    def _find_folder(self, data_dir: str | None) -> "CorpusData":
        """Complete local data; ``data_dir`` is the default folder of the built-in datasets."""
        if self.dataset == SAMPLE_TEXT:
            if self.data_dir is not None:
                raise ValueError(
                    f"{self.where}: dataset {self.dataset!r} is generated and reads no files; "
                    "remove data_dir"
                )
            return replace(self, sentences="line")
        if self.dataset is not None:
            reads_files = bool(DATASETS[self.dataset].files)
            data = replace(self, data_dir=self.data_dir or (data_dir if reads_files else None))
            data.to_task()  # fails here if the folder is missing
            return data
        folder = Path(self.data_dir or "")
        joined: dict[str, Any] = {
            key: tuple(str(folder / pattern) for pattern in patterns)
            for key in FILE_KEYS
            if (patterns := getattr(self, key)) is not None
        }
        return replace(self, **joined)

    @property
    def where(self) -> str:
        """Owner of the keys, for messages."""
        return f"corpus {self.name!r}"

    @property
    def held_out_share(self) -> float:
        """Share of the documents that is held out, without a held-out text."""
        return HELD_OUT_SHARE if self.validation_share is None else self.validation_share

    @property
    def source(self) -> str:
        """Name of the source, for messages."""
        return self.hub_id or self.dataset or ", ".join(self.train_file or ())

    @property
    def fetched(self) -> str | None:
        """Name on the Hub, or folder, of the dataset that is read; None for other files."""
        return self.to_task().hub_id if self.dataset in DATASETS else self.hub_id

    def to_task(self) -> TaskData:
        """Describe the built-in task whose sentences are the text.

        Raises:
            ValueError: If the folder of the task is missing.
        """
        keys = {"dataset": self.dataset, "data_dir": self.data_dir}
        return TaskData.from_recipe(
            self.name, keys | {"max_invalid_fraction": self.max_invalid_fraction}
        )


PLAIN_SUFFIXES = (".txt", "")
TEXT_SUFFIXES = (*PLAIN_SUFFIXES, ".jsonl", ".json", ".csv", ".tsv", ".parquet")
OWN_LINES = FileFormat(quoting=True)  # a document has many lines, also with tables
LARGEST_DOCUMENT = 100_000_000  # bytes; a document is read at once
HELD_OUT_SEED = 20181011
BATCH_DOCUMENTS = 1000
BATCH_CHARACTERS = 1_000_000
MAX_SMALL_VOCABULARY = 65_535  # tokens whose ids fit into two bytes

Numbers = NDArray[np.int64]


class Document(NamedTuple):
    """A document."""

    file: str  # or the dataset and its split
    line: int  # its first one, or its row, from 1
    text: str  # empty if it is invalid
    problem: str = ""  # why it is invalid, else empty


@dataclass(frozen=True)
class Source:
    """The documents of one split of a corpus."""

    data: CorpusData
    name: str  # for messages
    key: str  # identifies them in the cache
    files: tuple[str, ...] = ()
    rows: Any = None  # of a dataset without files: mappings that can be read repeatedly
    commit: str | None = None  # of a dataset on the Hub
    skipped: Sequence[InvalidRow] = ()  # rows of a task, of all its splits

    def read(self) -> Iterator[Document]:
        """Read the documents in order, including invalid ones."""
        return islice(self._read(), self.data.max_documents)

    def _read(self) -> Iterator[Document]:
        if self.rows is not None:
            yield from self._convert(self.name, map(Record, count(1), self.rows))
        for file in self.files:
            if find_suffix(file) in PLAIN_SUFFIXES:
                yield from read_text(file, self.data.documents)
            else:
                columns = (self.data.text_column,)
                yield from self._convert(file, read_records(file, columns, file_format=OWN_LINES))

    def _convert(self, file: str, records: Iterable[Record]) -> Iterator[Document]:
        column = self.data.text_column
        for record in records:
            text, problem = record.values.get(column), record.problem
            if not problem and column not in record.values:
                problem = f"no column {column!r}"
            # in a table, the text NaN is a missing value
            elif not problem and (not isinstance(text, str) or text.strip().lower() == "nan"):
                problem = f"column {column!r} holds {shorten(repr(text))}, not text"
            yield Document(file, record.line, "" if problem else str(text), problem)


def read_text(path: str, documents: str) -> Iterator[Document]:
    """Read the documents of a plain text: its lines, parts between blank lines, or the file."""

    def decode() -> Document:
        try:
            return Document(path, first, b"".join(lines).decode("utf-8"))
        except UnicodeDecodeError as error:
            problem = f"not UTF-8 ({error.reason}); save the file with that encoding"
            return Document(path, first, "", problem)

    lines: list[bytes] = []  # of a document that is not complete
    first, size = 1, 0
    with open_bytes(path) as file:
        for number, raw in read_lines(file, path, LARGEST_DOCUMENT):
            line = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
            if number == 1 and b"\r" in line.rstrip(b"\r") and not line.endswith(b"\n"):
                raise ValueError(
                    f"{path}: the file has carriage returns, as on old Macs, and no newline, so "
                    "all lines would be one; replace each by a newline"
                )
            is_blank = not line.decode("utf-8", "replace").strip()
            if documents == "file" or not is_blank:
                first, size = (first, size + len(line)) if lines else (number, len(line))
                lines.append(line)
            if size > LARGEST_DOCUMENT:
                raise ValueError(
                    f"{path}:{first}: the document that starts here is larger than "
                    f"{LARGEST_DOCUMENT // 1_000_000} MB, the limit; separate documents by blank "
                    "lines and give documents: blank_line, or line if every line is one"
                )
            if lines and (documents == "line" or (documents == "blank_line" and is_blank)):
                yield decode()
                lines = []
    if lines:
        yield decode()


def split_sentences(text: str, *, is_prose: bool) -> list[str]:
    """Split a document into lines or the sentences of prose, with normalized white space."""
    sentences = []
    for line in text.split("\n"):
        if line.strip():
            # the library panics on some non-ASCII white space
            parts = segment("en", " ".join(line.split())) if is_prose else [line]
            sentences += [squeezed for part in parts if (squeezed := " ".join(part.split()))]
    return sentences


def find_sources(data: CorpusData) -> dict[str, Source]:
    """Locate the documents of a corpus by split; text of files and streams is not read yet."""
    if data.hub_id is not None:
        return _find_hub_sources(data)
    if data.dataset is None:
        return _find_file_sources(data)
    commit, skipped = None, dict[str, list[InvalidRow]]()
    if data.dataset == SAMPLE_TEXT:
        texts = read_sample(SAMPLE_TEXT)
    else:  # the distinct sentences of a task, none in both splits
        task = load_task(data.to_task())
        train = dict.fromkeys(task.row_format.texts(task.splits["train"]))
        validation = dict.fromkeys(task.row_format.texts(task.splits["validation"]))
        unseen = [sentence for sentence in validation if sentence not in train]
        texts = {"train": list(train), "validation": unseen}
        commit, skipped = task.commit, {"train": task.bad_rows}
    return {
        split: Source(
            data,
            name=f"{data.dataset}:{split}",
            key=hashlib.sha256("\0".join(sentences).encode()).hexdigest(),
            rows=[{data.text_column: sentence} for sentence in sentences],
            commit=commit,
            skipped=skipped.get(split, ()),
        )
        for split, sentences in texts.items()
    }


def _find_file_sources(data: CorpusData) -> dict[str, Source]:
    sources: dict[str, Source] = {}
    are_plain: list[bool] = []
    for split, patterns in (("train", data.train_file), ("validation", data.validation_file)):
        if patterns is None:
            continue
        found: dict[Path, str] = {}  # without duplicates
        for pattern in patterns:
            matching = [pattern]
            if glob.has_magic(pattern) and not Path(pattern).is_file():
                # Path.glob rejects absolute patterns
                matches = glob.glob(pattern, recursive=True)  # noqa: PTH207
                matching = sorted(match for match in matches if Path(match).is_file())
            if not matching:
                raise FileNotFoundError(
                    f"{data.where}: no file matches {pattern!r}; check the pattern and data_dir "
                    f"(formats: {', '.join(filter(None, TEXT_SUFFIXES))})"
                )
            for file in matching:
                path = str(Path(file).absolute())
                check_file(path, TEXT_SUFFIXES)
                found.setdefault(Path(file).resolve(), path)
        paths = list(found.values())
        are_plain += [find_suffix(path) in PLAIN_SUFFIXES for path in paths]
        stats = [Path(path).stat() for path in paths]
        stamps = [(stat.st_size, stat.st_mtime_ns) for stat in stats]
        sources[split] = Source(
            data,
            name=paths[0] if len(paths) == 1 else ", ".join(patterns),
            key=repr((paths, stamps, data.documents, data.text_column)),
            files=tuple(paths),
        )
    for key, is_used in (("text_column", not all(are_plain)), ("documents", any(are_plain))):
        value = getattr(data, key)
        if not is_used and value != getattr(CorpusData, key):
            raise ValueError(
                f"{data.where}: {key}={value!r} has no effect on {sources['train'].files[0]}; text "
                "has no columns, and a row of a table or of JSON is a document"
            )
    return sources


def _find_hub_sources(data: CorpusData) -> dict[str, Source]:
    hub_id, column = str(data.hub_id), data.text_column
    where = f"{data.where}: dataset {hub_id!r}"
    splits, builder = open_hub(where, hub_id, data.revision, streaming=data.streaming)
    sources = {}
    wanted = {split: HUB_NAMES[split] for split in ("train", "validation")}
    for split, hub_split in match_splits(where, wanted, splits, data.validation_share).items():
        rows = splits[hub_split]
        # the columns of a stream may be unknown, but its first row has them
        columns = rows.column_names or [name for row in rows.take(1) for name in row]
        if column not in columns:
            raise ValueError(
                f"{where}: split {hub_split!r} has no column {column!r}; its columns: {columns}; "
                "choose one as text_column"
            )
        sources[split] = Source(
            data,
            name=f"{hub_id}:{hub_split}",
            key=f"{builder.cache_dir} {hub_split} {column}",
            rows=rows.select_columns([column]),
            commit=find_commit(hub_id, builder),
        )
    return sources


def held_out(share: float, total: float = inf) -> Iterator[int]:
    """Yield the number of one of every ``1 / share`` consecutive documents, below ``total``."""
    if share == 0:
        return
    rng = random.Random(HELD_OUT_SEED)
    for window in count():
        first, last = ceil(window / share), ceil((window + 1) / share)
        number = first + int(rng.random() * (last - first))
        if number >= total:
            return
        yield number


class TrainingTexts:
    """The training documents of corpora as texts, without the share held out and invalid ones.

    Those that equal a held-out one are among them, and so is the one that is held out of few. Every
    iteration reads them again, one document at a time; errors are those of `encode_corpus`. Other
    texts come first.
    """

    def __init__(self, corpora: Sequence[CorpusData], *, others: Sequence[str] = ()) -> None:
        self.others = others
        self.sources = [find_sources(data) for data in corpora]

    def __iter__(self) -> Iterator[str]:
        yield from self.others
        for sources in self.sources:
            train = sources["train"]
            skipped = held_out(0 if "validation" in sources else train.data.held_out_share)
            skip = next(skipped, -1)
            for number, document in enumerate(train.read()):
                if number == skip:
                    skip = next(skipped)
                elif not document.problem:
                    yield document.text


def store_tables(
    tables: Iterable[Mapping[str, Any]], schema: pa.Schema, name: str, key: Any
) -> datasets.Dataset:
    """Write tables, as columns, into the cache of `datasets`, or open those that are there.

    They are computed only if they are not in the cache; processes that want the same ones wait for
    the one that computes them. The key is all that determines them, and has a stable ``repr``.
    """
    folder = Path(datasets.config.HF_DATASETS_CACHE, f"minbert_{name}")
    folder.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(f"{hash_sources()} {key!r}".encode()).hexdigest()
    file = folder / f"{digest}.arrow"
    with FileLock(file.with_suffix(".lock")):
        if not file.exists():
            part = file.with_suffix(".part")
            with pa.ipc.new_stream(str(part), schema) as writer:
                for columns in tables:
                    writer.write_table(pa.table(columns, schema=schema))
            part.replace(file)  # whole or not at all
    return datasets.Dataset.from_file(str(file))


class TokenizedDocuments:
    """The documents of a split as tokens, read from files, without special tokens."""

    def __init__(self, dataset: datasets.Dataset, rows: Numbers, split: str) -> None:
        self.dataset = dataset  # all splits, with the columns sentences and digest
        self.rows = rows  # numbers of those of the split, ascending, (N,)
        self.split = split
        self._column = dataset.data.column("sentences")

    def __reduce__(self) -> tuple[Any, ...]:  # another process opens the files again
        return type(self), (self.dataset, self.rows, self.split)

    def __len__(self) -> int:
        return len(self.rows)

    def offsets(self, document: int) -> NDArray[np.int32]:
        """Return the first token of each sentence of a document, and the end, (S + 1,)."""
        sentences = self._column[int(self.rows[document])].values
        offsets: NDArray[np.int32] = sentences.offsets.to_numpy()
        return offsets - offsets[0]

    def tokens(self, document: int, first: int, last: int) -> NDArray[Any]:
        """Return the tokens ``first`` to ``last - 1`` of a document, (T,), uint16 or int32."""
        sentences = self._column[int(self.rows[document])].values
        tokens: NDArray[Any] = sentences.values.to_numpy()  # of all documents nearby
        start = sentences.offsets[0].as_py()
        return tokens[start + first : start + last]

    def count(self, longest: int) -> tuple[int, int, int]:
        """Count sentences, tokens, and sentences of more than ``longest`` tokens."""
        sentences = tokens = long_sentences = 0
        for _, lengths in self._measure():
            sentences += len(lengths)
            tokens += int(lengths.sum(dtype=np.int64))
            long_sentences += int((lengths > longest).sum())
        return sentences, tokens, long_sentences

    def fingerprint(self) -> str:
        """Hash the tokens of documents and the lengths of sentences."""
        digests = self.dataset.data.column("digest").to_numpy()[self.rows]
        hashes = [hashlib.blake2b(part, digest_size=16) for part in (digests.tobytes(), b"", b"")]
        for sizes, lengths in self._measure():
            hashes[1].update(sizes.tobytes())
            hashes[2].update(lengths.tobytes())
        return "".join(part.hexdigest() for part in hashes)

    def _measure(self) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32]]]:
        """Yield the sentences of each document, and the tokens of each sentence, by chunk."""
        start = 0
        for chunk in self._column.chunks:
            first, last = self.rows.searchsorted((start, start + len(chunk)))
            documents = chunk.take(pa.array(self.rows[first:last] - start))
            yield tuple(
                pc.list_value_length(part).to_numpy() for part in (documents, documents.flatten())
            )
            start += len(chunk)


@dataclass(frozen=True)
class EncodedCorpus:
    """The documents of corpora."""

    splits: dict[str, TokenizedDocuments]  # train and validation
    bad_rows: list[InvalidRow]
    others: list[str]  # what else is skipped, other than held-out documents
    fingerprint: str  # hash of the texts of both splits
    commits: dict[str, str]  # of corpora on the Hub, by name

    def describe_skipped(self, *, quotes: bool) -> list[str]:
        """Describe the skipped documents, with words of theirs if they may be quoted."""
        return [row.describe(quotes=quotes) for row in self.bad_rows] + self.others


def encode_corpus(
    corpora: Sequence[CorpusData], tokenizer: PreTrainedTokenizerBase
) -> EncodedCorpus:
    """Tokenize corpora, or load their tokens from the cache of `datasets`.

    Training documents that equal a held-out one, in any of the corpora, are skipped with a warning.
    If there are too few documents for the share that is held out, one is.

    Args:
        corpora: The corpora, from ``CorpusData.from_recipe``, in order.
        tokenizer: Tokenizer of the model.

    Raises:
        ValueError: If a file or a dataset cannot be read, lacks the column, or has too many invalid
            documents, or a split is empty.
        OSError: If a file or a dataset does not exist.
    """
    names = ", ".join(repr(data.name) for data in corpora)
    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_padding()
    copy.no_truncation()
    copy.encode_special_tokens = True  # [MASK] in a text is plain text
    space = find_space(tokenizer)
    parts: list[datasets.Dataset] = []
    bad_rows: list[InvalidRow] = []
    skipped: list[InvalidRow] = []  # before they were documents
    commits: dict[str, str] = {}
    # numbers of the documents with a token, ascending
    chosen: dict[str, list[Numbers]] = {"train": [], "validation": []}
    candidates: list[int] = []  # of which one is held out if no other is
    start = 0
    for data in corpora:
        sources = find_sources(data)
        if (commit := sources["train"].commit) is not None:
            commits[data.name] = commit
        share = 0.0 if "validation" in sources else data.held_out_share
        for split, source in sources.items():
            documents = _tokenize_source(source, copy, space)
            bad_rows += _list_invalid(source, documents)
            skipped += source.skipped
            sentences = pc.list_value_length(documents.data.column("sentences")).to_numpy()
            rows = np.flatnonzero(sentences)
            is_held = np.isin(rows, list(held_out(share, len(documents))))
            chosen[split].append(start + rows[~is_held])
            chosen["validation"].append(start + rows[is_held])
            candidates += (start + rows).tolist() if share else []
            parts.append(documents.select_columns(["sentences", "digest"]))
            start += len(documents)
    train, validation = (np.concatenate(chosen[split]) for split in ("train", "validation"))
    empty = start - len(train) - len(validation) - len(bad_rows)
    if not len(validation) and len(train) > 1 and candidates:
        validation = np.array([random.Random(HELD_OUT_SEED).choice(candidates)])
        train = train[train != validation]

    others = []
    if empty:
        others.append(f"{empty} documents without a token")
    dataset = datasets.concatenate_datasets(parts)
    digests = dataset.data.column("digest").to_numpy()
    is_repeated = np.isin(digests[train], digests[validation], kind="sort")
    train = train[~is_repeated]
    repeated = int(is_repeated.sum())
    equal = ""
    if repeated:
        equal = f", since {repeated} equal held-out ones"
        others.append(f"{repeated} training documents that equal held-out ones")
        logger.warning("corpus %s: skipped %s", names, others[-1])
    if not len(train):
        raise ValueError(f"corpus {names}: no training document is left{equal}; add documents")
    if not len(validation):
        raise ValueError(
            f"corpus {names}: no document of {len(train)} is held out; give validation_file, or a "
            "validation_share with more documents: check what the key 'documents' takes for one "
            "(blank_line, file or line)"
        )
    numbers = {"train": train, "validation": validation}
    splits = {name: TokenizedDocuments(dataset, rows, name) for name, rows in numbers.items()}
    fingerprint = " ".join(documents.fingerprint() for documents in splits.values())
    return EncodedCorpus(splits, skipped + bad_rows, others, fingerprint, commits)


def _list_invalid(source: Source, documents: datasets.Dataset) -> list[InvalidRow]:
    """List the invalid documents of a source, and warn of them; too many are an error."""
    places = np.flatnonzero(documents.data.column("problem").is_valid())
    wrong = documents.select_columns(["file", "line", "problem"]).select(places)
    invalid = [InvalidRow(row["file"], row["line"], row["problem"]) for row in wrong]
    check_invalid_fraction(source.name, invalid, len(documents), source.data.max_invalid_fraction)
    log_invalid_rows(source.data.where, invalid)
    return invalid


def _tokenize_source(source: Source, tokenizer: Tokenizer, space: str) -> datasets.Dataset:
    """Tokenize the documents of a source, or load their tokens from the cache."""
    data = source.data
    is_small = tokenizer.get_vocab_size() <= MAX_SMALL_VOCABULARY
    features = make_features(
        sentences=[["uint16" if is_small else "int32"]],
        digest="uint64",
        file="string",
        line="int64",
        problem="string",
    )
    options = (data.sentences == "split", data.max_documents, version("sentencex"))
    key = (source.key, tokenizer.to_str(), *options)
    where = f"{data.where}: dataset {data.hub_id!r}"
    with readable_hub(where) if data.hub_id else nullcontext():
        return store_tables(_tokenize(source, tokenizer, space), features.arrow_schema, "text", key)


def _tokenize(source: Source, tokenizer: Tokenizer, space: str) -> Iterator[dict[str, Any]]:
    """Yield the documents of a source as columns of tables.

    The sentences of a document after the first are tokenized with ``space`` before them.
    ``sentences`` has their tokens, without sentences that have none. ``digest`` is that of the
    tokens. ``file``, ``line`` and ``problem`` are those of invalid documents.
    """
    is_prose = source.data.sentences == "split"
    is_empty = True
    for batch in _batch(show_progress(source.read(), f"tokenize {source.name}")):
        is_empty = False
        texts = [split_sentences(document.text, is_prose=is_prose) for document in batch]
        sentences = [
            space * bool(place) + sentence for text in texts for place, sentence in enumerate(text)
        ]
        # in parallel: reading and splitting take little time beside it
        encodings = iter(tokenizer.encode_batch_fast(sentences, add_special_tokens=False))
        tokens = [[next(encodings).ids for _ in text] for text in texts]
        yield {
            "sentences": [list(filter(None, sentences)) for sentences in tokens],
            "digest": np.frombuffer(b"".join(map(_digest, tokens)), np.uint64),
            "file": [document.file if document.problem else None for document in batch],
            "line": [document.line if document.problem else None for document in batch],
            "problem": [document.problem or None for document in batch],
        }
    if is_empty:
        raise ValueError(f"{source.name}: there are no documents; add some")


def _digest(sentences: Iterable[Iterable[int]]) -> bytes:
    """Hash the tokens of a document: what a tokenizer cannot tell apart, such as case, is equal."""
    ids = np.fromiter(chain.from_iterable(sentences), np.int32)
    return hashlib.blake2b(ids.tobytes(), digest_size=8).digest()


def _batch(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document.text)
        if len(batch) == BATCH_DOCUMENTS or size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
