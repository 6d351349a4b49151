"""Split documents into passages, where they are too few to hold whole ones out."""

from itertools import chain

import datasets
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from datasets_scripts.files.cache import digest_text

MOST_SENTENCES = 100  # of a passage: long enough to fill rows, and short enough to spread


def split_documents(dataset: datasets.Dataset, share: float) -> datasets.Dataset:
    """Split tokenized documents into passages, so many that ``share`` of them are two or more.

    Args:
        dataset: Documents with a column ``sentences``; their tokens are not copied.
        share: Share that is to be held out, in (0, 1).

    Returns:
        Passages of consecutive sentences, in order; each is a document of the same columns.
    """
    columns = dataset.data.column("sentences").chunks
    total = sum(
        int(documents.offsets[-1].as_py() - documents.offsets[0].as_py()) for documents in columns
    )
    size = min(MOST_SENTENCES, max(1, int(total * share / 2)))
    tables, first = [], 0
    for documents in columns:
        rows = dataset.data.table.slice(first, len(documents))
        tables.append(_split_chunk(rows, documents, size))
        first += len(documents)
    table = datasets.table.InMemoryTable(pa.concat_tables(tables))
    return datasets.Dataset(table, info=datasets.DatasetInfo(features=dataset.features))


def _split_chunk(rows: pa.Table, documents: pa.ListArray, size: int) -> pa.Table:
    """Split the documents of a chunk of the column into passages of ``size`` sentences."""
    offsets = documents.offsets.to_numpy()
    starts = [
        list(range(first, last, size)) or [first]  # also a document without sentences
        for first, last in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]
    owners = np.repeat(np.arange(len(starts)), list(map(len, starts)))
    cuts = np.fromiter(chain(*starts, [offsets[-1]]), np.int32)
    passages = pa.ListArray.from_arrays(pa.array(cuts), documents.values)
    made = {"sentences": passages, "digest": pa.array(_digest(passages))}
    kept = rows.drop_columns(list(made)).take(pa.array(owners))
    others = dict(zip(kept.column_names, kept.columns, strict=True))
    return pa.table({**others, **made}).select(rows.column_names).cast(rows.schema)


def _digest(passages: pa.ListArray) -> NDArray[np.uint64]:
    """Hash passages by their tokens, since their texts are not stored."""
    return np.array([digest_text(repr(passage)) for passage in passages.to_pylist()], np.uint64)
