"""The `datasets` builder of tokenized text: documents are tokenized once, in parallel."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from datasets.exceptions import DatasetGenerationError
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from datasets_scripts.files.cache import digest_text, hash_sources, progress_bars
from datasets_scripts.files.hub import readable_hub
from datasets_scripts.problems.row_format import make_features

from .corpus_data import CorpusData
from .documents import Document, split_sentences
from .sources import Shard, Source

LARGE_FILES = 20_000_000  # bytes; smaller ones need neither processes nor a progress bar
BATCH_DOCUMENTS = 1000
BATCH_CHARACTERS = 1_000_000
MAX_SMALL_VOCABULARY = 65_535  # tokens whose ids fit into two bytes


@dataclass
class TokenizedTextConfig(datasets.BuilderConfig):  # type: ignore[misc]
    """Everything that determines the tokens of a text."""

    key: str = ""  # of the source
    tokenizer: str = ""  # as JSON
    language: str | None = None  # None treats lines as sentences
    max_documents: int | None = None
    splitter: str = ""  # version of the sentence splitter


class TokenizedText(datasets.ArrowBasedBuilder):  # type: ignore[misc]
    """A document's sentences as tokens, or its error; ``digest`` ignores white space."""

    BUILDER_CONFIG_CLASS = TokenizedTextConfig

    def __init__(self, source: Source, **kwargs: Any) -> None:
        self.source = source
        super().__init__(**kwargs)

    def _info(self) -> datasets.DatasetInfo:
        size = Tokenizer.from_str(self.config.tokenizer).get_vocab_size()
        kind = "uint16" if size <= MAX_SMALL_VOCABULARY else "int32"
        features = make_features(
            sentences=[[kind]], digest="uint64", file="string", position="int64", problem="string"
        )
        return datasets.DatasetInfo(features=features)

    def _split_generators(
        self, dl_manager: datasets.DownloadManager
    ) -> list[datasets.SplitGenerator]:
        return [datasets.SplitGenerator(name="train", gen_kwargs={"shards": self.source.shards})]

    def _generate_tables(self, shards: list[Shard]) -> Iterator[tuple[int, pa.Table]]:
        tokenizer = Tokenizer.from_str(self.config.tokenizer)
        # [MASK] in a text is plain text
        tokenizer.encode_special_tokens = True
        schema = self.info.features.arrow_schema
        documents = ((shard.name, document) for shard in shards for document in shard.read())
        number = -1
        for number, batch in enumerate(_batch(islice(documents, self.config.max_documents))):
            yield number, _make_table(schema, batch, tokenizer, self.config.language)
        # a part of the shards may be empty, but not all of them
        if number < 0 and len(shards) == len(self.source.shards):
            raise ValueError(f"{self.source.name}: there are no documents; add some")


def build_tokens(
    data: CorpusData,
    source: Source,
    settings: str,
    num_proc: int | None,
    cache_dir: str | Path | None,
) -> datasets.Dataset:
    """Tokenize the documents of a source, or load their tokens from the cache."""
    builder = TokenizedText(
        source,
        cache_dir=cache_dir,
        dataset_name="minbert_text",
        hash=hash_sources("files", "corpus"),
        key=source.key,
        tokenizer=settings,
        language=data.language if data.sentences == "split" else None,
        max_documents=data.max_documents,
        splitter=version("sentencex"),
    )
    is_large = source.size is None or source.size > LARGE_FILES
    processes = min(num_proc or (_count_cores() if is_large else 1), len(source.shards))
    if data.max_documents:  # the first documents can only be found by reading in order
        processes = 1
    where = f"{data.where}: dataset {data.hub_id!r}"
    with (
        readable_hub(where) if data.hub_id else nullcontext(),
        _one_thread_each(processes),
        progress_bars(shown=is_large),
    ):
        _prepare(builder, processes)
        return builder.as_dataset()["train"]


def _prepare(builder: TokenizedText, processes: int) -> None:
    try:
        builder.download_and_prepare(num_proc=processes if processes > 1 else None)
    except DatasetGenerationError as error:
        # the reader's own message is the useful one
        if isinstance(error.__cause__, ValueError | OSError):
            raise error.__cause__ from None
        raise


def describe_tokenizer(tokenizer: PreTrainedTokenizerBase) -> str:
    """Write the tokenizer as JSON, without its padding and truncation."""
    copy = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    copy.no_padding()
    copy.no_truncation()
    return str(copy.to_str())


def _count_cores() -> int:
    """Count the cores available to this process."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _one_thread_each(processes: int) -> Iterator[None]:
    """Prevent tokenizers in several processes from starting threads, and from warning about it."""
    name, value = "TOKENIZERS_PARALLELISM", os.environ.get("TOKENIZERS_PARALLELISM")
    if processes > 1:
        os.environ[name] = "false"
    try:
        yield
    finally:
        if value is not None:
            os.environ[name] = value
        elif processes > 1:
            del os.environ[name]


def _batch(documents: Iterable[tuple[str, Document]]) -> Iterator[list[tuple[str, Document]]]:
    """Split documents into batches of two or more."""
    batch: list[tuple[str, Document]] = []
    size = 0
    for name, document in documents:
        batch.append((name, document))
        size += len(document.text)
        is_full = len(batch) == BATCH_DOCUMENTS or size >= BATCH_CHARACTERS
        # `datasets` keeps tables of one row in memory
        if is_full and len(batch) > 1:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _make_table(
    schema: pa.Schema,
    batch: list[tuple[str, Document]],
    tokenizer: Tokenizer,
    language: str | None,
) -> pa.Table:
    documents = [split_sentences(document.text, language) for _, document in batch]
    columns = {
        "sentences": _tokenize(tokenizer, documents, schema.field("sentences").type),
        "digest": np.array([digest_text("".join(text)) for text in documents], np.uint64),
        "file": [name if document.problem else None for name, document in batch],
        "position": [document.position if document.problem else None for _, document in batch],
        "problem": [document.problem or None for _, document in batch],
    }
    return pa.table(columns, schema=schema)


def _tokenize(tokenizer: Tokenizer, documents: list[list[str]], kind: pa.DataType) -> pa.Array:
    """Tokenize documents, which are lists of sentences; sentences without a token are dropped."""
    sentences = list(chain.from_iterable(documents))
    encodings = tokenizer.encode_batch_fast(sentences, add_special_tokens=False)
    ids = [encoding.ids for encoding in encodings]
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    owners = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
    counts = np.bincount(owners[lengths > 0], minlength=len(documents))
    dtype = kind.value_type.value_type.to_pandas_dtype()
    values = np.fromiter(chain.from_iterable(ids), dtype, int(lengths.sum()))
    tokens = pa.ListArray.from_arrays(_to_offsets(lengths[lengths > 0]), pa.array(values))
    return pa.ListArray.from_arrays(_to_offsets(counts), tokens)


def _to_offsets(lengths: NDArray[np.int64]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
