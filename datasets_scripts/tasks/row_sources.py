"""Where the rows of a split come from, before they are converted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import datasets

from datasets_scripts.files.hub import class_names
from datasets_scripts.files.progress import progress_bars
from datasets_scripts.files.readers import FileFormat, Record
from datasets_scripts.problems import RowFormat

LONG_MAP = 50_000  # rows; fewer are converted before a progress bar is of use


@dataclass(frozen=True)
class FileSource:
    """A file of rows."""

    name: str  # its path
    split: str  # its split
    file_format: FileFormat  # how a delimited file is written

    @property
    def path(self) -> str:
        """Path of the file."""
        return self.name

    def read(self, row_format: RowFormat) -> Iterator[Record]:
        """Read the records."""
        return row_format.read(self.name, self.split, self.file_format)

    def labels(self, row_format: RowFormat) -> Iterable[Any]:
        """Yield all labels."""
        return (record.values.get(str(row_format.label_column)) for record in self.read(row_format))

    def class_names(self, row_format: RowFormat) -> None:  # noqa: ARG002
        """Return None: files declare no names."""
        return


@dataclass(frozen=True)
class HubSource:
    """Rows of a dataset on the Hub."""

    name: str  # ``hub_id:split``
    split: str  # our name of the split
    rows: datasets.Dataset  # the rows
    path: None = None

    def read(self, row_format: RowFormat) -> Iterator[Record]:
        """Yield the rows as records."""
        names = self.class_names(row_format)
        for number, values in enumerate(self.rows):
            yield row_format.from_hub(number, values, names)

    def labels(self, row_format: RowFormat) -> Iterable[Any]:
        """Return the distinct labels."""
        labels: list[Any] = self.rows.unique(row_format.label_column)
        return labels

    def class_names(self, row_format: RowFormat) -> tuple[str, ...] | None:
        """Return the names of the classes that the label column declares."""
        return class_names(self.rows, row_format.label_column)

    def convert(self, row_format: RowFormat) -> datasets.Dataset:
        """Convert the rows; invalid rows are kept and marked."""
        with progress_bars(shown=len(self.rows) > LONG_MAP):
            return self.rows.map(
                _convert_row,
                with_indices=True,
                remove_columns=self.rows.column_names,
                features=row_format.features,
                fn_kwargs={
                    "row_format": row_format,
                    "split": self.split,
                    "names": self.class_names(row_format),
                },
            )


def _convert_row(
    values: dict[str, Any],
    number: int,
    row_format: RowFormat,
    split: str,
    names: tuple[str, ...] | None,
) -> dict[str, Any]:
    return row_format.to_row(row_format.from_hub(number, values, names), number, split)
