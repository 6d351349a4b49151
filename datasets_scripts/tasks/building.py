"""Build the rows of a split."""

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa

from datasets_scripts.files.cache import (
    MOST_CHARACTERS,
    MOST_ROWS,
    hash_sources,
    show_progress,
)
from datasets_scripts.problems.row_format import Row, RowFormat, RowSource


def build_rows(
    source: RowSource, row_format: RowFormat, cache_dir: str | Path | None
) -> datasets.Dataset:
    """Build the rows of a split, invalid ones marked, mapped from a temporary file."""
    folder = Path(cache_dir or datasets.config.HF_DATASETS_CACHE) / "minbert_rows"
    folder.mkdir(parents=True, exist_ok=True)
    records = show_progress(source.read(row_format), f"read {source.split}")
    rows = (
        row_format.to_row(record, number, source.split) for number, record in enumerate(records)
    )
    schema = row_format.features.arrow_schema
    digest = hashlib.sha256(hash_sources("files", "problems").encode())
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".arrow", delete=False) as file:
        try:
            with pa.ipc.new_stream(file, schema) as writer:
                for block in _split_rows(rows, digest):
                    writer.write_table(pa.Table.from_pylist(block, schema))
            file.flush()
            table = datasets.table.MemoryMappedTable.from_file(file.name)
        finally:
            with suppress(PermissionError):  # Windows keeps a file in use
                Path(file.name).unlink()
    return datasets.Dataset(table, fingerprint=digest.hexdigest()[:32])


def _split_rows(rows: Iterable[Row], digest: Any) -> Iterator[list[Row]]:
    """Split rows into blocks that fit into memory, and hash them."""
    block: list[Row] = []
    size = 0
    for row in rows:
        text = repr(row)
        digest.update(text.encode())
        block.append(row)
        size += len(text)
        if len(block) == MOST_ROWS or size >= MOST_CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block
