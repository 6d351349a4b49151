"""Training rows without labels, from which a student learns what its teachers predict."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from datasets_scripts.files.readers import PLAIN_FORMAT, Record
from datasets_scripts.problems.row_format import RowFormat, RowSource

from .building import build_rows
from .reading import ValidRows, find_valid
from .subsampling import choose_places
from .task_data import TaskData

SPLIT = "test_unlabeled"  # rows of a test split may lack their labels
MISSING = -100  # the label of an encoded row that has none; losses leave it out


@dataclass(frozen=True)
class TextsOf(RowSource):
    """Rows of which only the texts are read."""

    def read(self, row_format: RowFormat) -> Iterator[Record]:
        """Read the records without their labels."""
        for record in super().read(row_format):
            texts = {name: record.values.get(name) for name in row_format.text_columns}
            yield replace(record, values=texts if record.values else {})


def read_unlabeled(
    data: TaskData, row_format: RowFormat, cache_dir: str | Path | None
) -> ValidRows | None:
    """Read the rows without labels of a task, and draw some of them; None if it has none."""
    if data.unlabeled_file is None:
        return None
    row_format = replace(row_format, id_column=None)
    file_format = data.file_format if data.files else PLAIN_FORMAT
    source = TextsOf(data.unlabeled_file, SPLIT, file_format)
    valid = find_valid(data, row_format, source, build_rows(source, row_format, cache_dir))
    most = data.max_unlabeled_samples
    if most is None:
        return valid
    seed = f"{data.sample_seed} unlabeled"
    chosen = choose_places(np.zeros(len(valid.rows), np.int64), most, seed)
    return valid._replace(rows=valid.rows.select(chosen))


def join_unlabeled(
    labeled: datasets.Dataset, unlabeled: datasets.Dataset | None
) -> datasets.Dataset:
    """Append encoded rows without labels to those with labels; their labels are -100."""
    if unlabeled is None or not len(unlabeled):
        return labeled
    missing: Any = np.full_like(np.asarray(labeled[0]["labels"]), MISSING).tolist()
    rows = unlabeled.add_column(
        "labels", [missing] * len(unlabeled), feature=labeled.features["labels"]
    )
    return datasets.concatenate_datasets([labeled, rows.select_columns(labeled.column_names)])
