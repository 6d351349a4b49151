"""The `datasets` builders: the official files and the user's own, and the sample."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
from datasets.exceptions import DatasetGenerationError

from datasets_scripts.catalog import FileFormat
from datasets_scripts.problems.question_answering import QuestionFormat
from datasets_scripts.problems.texts import RowFormat
from datasets_scripts.samples.task_rows import generate_rows

from .progress import progress_bars
from .readers import PLAIN_FORMAT, check_file

# `datasets` does not see code edits, so the code is a part of the name of the cache folder.
SOURCES = (
    "files/builders.py",
    "files/compression.py",
    "files/readers.py",
    "problems/question_answering.py",
    "problems/texts.py",
    "samples/task_rows.py",
    "samples/task_words.py",
)
PACKAGE = Path(__file__).parents[1]
Format = RowFormat | QuestionFormat
LARGE_FILES = 20_000_000  # bytes; smaller ones are built before a progress bar could be read


@dataclass
class FileRowsConfig(datasets.BuilderConfig):  # type: ignore[misc]
    """Files of a task and how to read them.

    Args:
        files: Path by split.
        stamps: Size and time of change by split, so that an edited file is read again.
        row_format: How records become rows.
        file_format: How delimited files are written.
    """

    files: dict[str, str] | None = None
    stamps: dict[str, tuple[int, int]] | None = None
    row_format: Format | None = None
    file_format: FileFormat = PLAIN_FORMAT


class FileRows(datasets.GeneratorBasedBuilder):  # type: ignore[misc]
    """Rows of CSV, TSV, JSON-lines or Parquet files; bad rows are kept and marked."""

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
        row_format: Format = self.config.row_format
        records = row_format.read(path, split, self.config.file_format)
        for number, record in enumerate(records):
            yield number, row_format.to_row(record, number, split)


@dataclass
class SampleRowsConfig(datasets.BuilderConfig):  # type: ignore[misc]
    """Which sample to generate.

    Args:
        dataset: ``sample_sst``, ``sample_quora`` or ``sample_sts``.
        row_format: How records become rows.
    """

    dataset: str = ""
    row_format: Format | None = None


class SampleRows(datasets.GeneratorBasedBuilder):  # type: ignore[misc]
    """Rows of the built-in sample."""

    BUILDER_CONFIG_CLASS = SampleRowsConfig

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(features=self.config.row_format.features)

    def _split_generators(
        self,
        dl_manager: datasets.DownloadManager,  # noqa: ARG002  (the base class passes it)
    ) -> list[datasets.SplitGenerator]:
        return [
            datasets.SplitGenerator(name=split, gen_kwargs={"rows": rows})
            for split, rows in generate_rows(self.config.dataset).items()
        ]

    def _generate_examples(
        self, rows: list[dict[str, Any]]
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, row in enumerate(rows):
            yield number, {"id": str(number), **row, "line": number + 1, "problem": ""}


def build_file_rows(
    files: dict[str, str], row_format: Format, *, file_format: FileFormat, cache_dir: str | None
) -> datasets.DatasetDict:
    """Build or re-use the rows of a task's files, bad rows included.

    Raises:
        ValueError: If a file cannot be read.
        FileNotFoundError: If a file is missing.
    """
    for path in files.values():
        check_file(path)
    stats = {split: Path(path).stat() for split, path in files.items()}
    builder = FileRows(
        cache_dir=cache_dir,
        dataset_name="minbert_files",
        hash=hash_sources(*SOURCES),
        files={split: str(Path(path).resolve()) for split, path in files.items()},
        stamps={split: (stat.st_size, stat.st_mtime_ns) for split, stat in stats.items()},
        row_format=row_format,
        file_format=file_format,
    )
    return build_cached(
        builder, is_large=sum(stat.st_size for stat in stats.values()) > LARGE_FILES
    )


def build_sample_rows(
    dataset: str, row_format: Format, *, cache_dir: str | None
) -> datasets.DatasetDict:
    """Build or re-use the rows of a generated sample."""
    builder = SampleRows(
        cache_dir=cache_dir,
        dataset_name="minbert_sample",
        hash=hash_sources(*SOURCES),
        dataset=dataset,
        row_format=row_format,
    )
    return build_cached(builder, is_large=False)


def build_cached(
    builder: datasets.DatasetBuilder, *, is_large: bool, num_proc: int | None = None
) -> datasets.DatasetDict:
    """Build what a builder makes, or take it from the cache.

    Args:
        builder: The builder.
        is_large: Whether it takes so long that a progress bar can be read.
        num_proc: Processes that build the shards of its splits.

    Raises:
        ValueError: If a file cannot be read.
        OSError: If a file is missing.
    """
    with progress_bars(shown=is_large):
        try:
            builder.download_and_prepare(num_proc=num_proc)
        except DatasetGenerationError as error:
            # The reader's own message is the one that a user can act on.
            if isinstance(error.__cause__, ValueError | OSError):
                raise error.__cause__ from None
            raise
        return builder.as_dataset()


def hash_sources(*names: str) -> str:
    """Hash files of this package, whose edits make what was built with them stale."""
    digest = hashlib.sha256()
    for name in names:
        digest.update((PACKAGE / name).read_bytes())
    return digest.hexdigest()[:16]
