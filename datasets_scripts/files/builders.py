"""The `datasets` builder of rows from files."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import datasets
from datasets.exceptions import DatasetGenerationError

from .progress import progress_bars
from .readers import PLAIN_FORMAT, FileFormat, Record, check_file

PACKAGE = Path(__file__).parents[1]
LARGE_FILES = 20_000_000  # bytes; smaller files are built before a progress bar is of use


class RowReader(Protocol):
    """Reads records and converts them to rows."""

    @property
    def features(self) -> datasets.Features:
        """Columns of the rows."""

    def read(self, path: str, split: str, file_format: FileFormat) -> Iterator[Record]:
        """Read the records of a file."""

    def to_row(self, record: Record, number: int, split: str) -> dict[str, Any]:
        """Convert a record to a row."""


@dataclass
class FileRowsConfig(datasets.BuilderConfig):  # type: ignore[misc]
    """Files of a task and how to read them."""

    files: dict[str, str] | None = None
    stamps: dict[str, tuple[int, int]] | None = None
    row_format: RowReader | None = None
    file_format: FileFormat = PLAIN_FORMAT


class FileRows(datasets.GeneratorBasedBuilder):  # type: ignore[misc]
    """Rows of files; invalid rows are kept and marked."""

    BUILDER_CONFIG_CLASS = FileRowsConfig

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(features=self.config.row_format.features)

    def _split_generators(
        self,
        dl_manager: datasets.DownloadManager,  # noqa: ARG002  (the base class passes it)
    ) -> list[datasets.SplitGenerator]:
        return [
            datasets.SplitGenerator(name=split, gen_kwargs={"path": path, "split": split})
            for split, path in self.config.files.items()
        ]

    def _generate_examples(self, path: str, split: str) -> Iterator[tuple[int, dict[str, Any]]]:
        row_format: RowReader = self.config.row_format
        records = row_format.read(path, split, self.config.file_format)
        for number, record in enumerate(records):
            yield number, row_format.to_row(record, number, split)


def build_file_rows(
    files: dict[str, str],
    row_format: RowReader,
    *,
    suffixes: tuple[str, ...] | None,
    file_format: FileFormat,
    cache_dir: str | None,
) -> datasets.DatasetDict:
    """Build the rows of a task's files, or load them from the cache; invalid rows are included."""
    for path in files.values():
        check_file(path, suffixes)
    stats = {split: Path(path).stat() for split, path in files.items()}
    builder = FileRows(
        cache_dir=cache_dir,
        dataset_name="minbert_files",
        hash=hash_sources("files", "problems"),
        files={split: str(Path(path).resolve()) for split, path in files.items()},
        stamps={split: (stat.st_size, stat.st_mtime_ns) for split, stat in stats.items()},
        row_format=row_format,
        file_format=file_format,
    )
    return build_cached(
        builder, is_large=sum(stat.st_size for stat in stats.values()) > LARGE_FILES
    )


def build_cached(
    builder: datasets.DatasetBuilder, *, is_large: bool, num_proc: int | None = None
) -> datasets.DatasetDict:
    """Run a builder, or load its result from the cache."""
    with progress_bars(shown=is_large):
        try:
            builder.download_and_prepare(num_proc=num_proc)
        except DatasetGenerationError as error:
            # the reader's own message is the useful one
            if isinstance(error.__cause__, ValueError | OSError):
                raise error.__cause__ from None
            raise
        return builder.as_dataset()


def hash_sources(*rooms: str) -> str:
    """Hash the modules of rooms of this package: `datasets` does not notice edits of the code."""
    digest = hashlib.sha256()
    for room in rooms:
        for path in sorted((PACKAGE / room).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
