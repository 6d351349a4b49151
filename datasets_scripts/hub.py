"""Rows of datasets on the Hub, or in a local folder with the layout of one."""

import logging
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
from datasets import Dataset
from datasets.exceptions import DatasetsError
from datasets.packaged_modules.cache.cache import Cache
from datasets.packaged_modules.csv.csv import Csv

from .readers import check_header, read_names
from .row_format import RowFormat

logger = logging.getLogger(__name__)

# Options of CSV that change values.
TYPED = ("thousands", "true_values", "false_values", "converters")
# Names that datasets on the Hub use for our splits; the first one present wins.
HUB_NAMES = {
    "train": ("train",),
    "validation": ("validation", "dev", "valid", "val", "evaluation", "eval", "validation_matched"),
    "test": ("test", "testing", "test_matched"),
    "validation_mismatched": ("validation_mismatched",),
    "test_mismatched": ("test_mismatched",),
}


def fetch_splits(row_format: RowFormat) -> tuple[dict[str, Dataset], str | None]:
    """Fetch the splits of a dataset on the Hub, and its commit; None for a local folder."""
    data = row_format.data
    hub_id = str(data.hub_id)
    where = f"{data.where}: dataset {hub_id!r}"
    fetched, builder = open_hub(where, hub_id, data.revision)
    found = match_splits(where, HUB_NAMES, fetched, data.validation_share)
    if "validation" not in found and data.validation_share == 0:
        raise ValueError(f"{where} has no split 'validation'; its splits: {', '.join(fetched)}")
    _check_names(where, builder, (row_format.label_column, *(data.label_columns or ())))
    splits: dict[str, Dataset] = {}
    for split, name in found.items():
        rows = fetched[name]
        check_header(
            f"{where}: split {name!r}", rows.column_names, row_format.required_columns(split)
        )
        is_named = data.problem_type == "multi_output_classification"
        for column in data.label_columns or () if is_named else ():
            feature = rows.features.get(column)
            if isinstance(feature, datasets.ClassLabel):  # by whose names; -1 is no label
                names = [*map(dict(enumerate(feature.names)).get, rows[column][:])]
                rows = rows.remove_columns(column).add_column(column, names)
        splits[split] = rows
    return splits, find_commit(hub_id, builder)


def _check_names(where: str, builder: datasets.DatasetBuilder, columns: Iterable[str]) -> None:
    """Refuse files of a local folder whose classes differ: `datasets` names all as in the first."""
    files = [*chain.from_iterable((builder.config.data_files or {}).values())]
    for column in columns:
        found = {}
        for path in files:
            if Path(path).is_file() and (names := read_names(path, column)) is not None:
                found[names] = f"{Path(path).name} has {', '.join(names)}"
        longest = max(found, key=len, default=())
        if others := [names for names in found if names != longest[: len(names)]]:
            raise ValueError(
                f"{where}: the numbers in column {column!r} do not stand for the same classes: "
                f"{found[longest]}, and {found[others[0]]}; cast all to one ClassLabel, or write "
                "the names"
            )


def match_splits(
    where: str, wanted: Mapping[str, Iterable[str]], fetched: Iterable[str], share: float | None
) -> dict[str, str]:
    """Find the splits of a dataset that stand for ours; without validation rows warn of the others.

    ``share`` is that of the training rows to hold out, if a recipe has one.
    """
    found = {}
    for split, names in wanted.items():
        if present := [name for name in names if name in fetched]:
            found[split] = present[0]
    if "train" in wanted.keys() - found.keys():
        raise ValueError(f"{where} has no split 'train'; its splits: {', '.join(fetched)}")
    if "validation" in found and share:
        raise ValueError(
            f"{where} has a split {found['validation']!r}, so validation_share={share:g} has no "
            "effect; remove it"
        )
    unread = sorted({*fetched} - {*chain.from_iterable(HUB_NAMES.values())})
    # one of them may have the validation rows
    if unread and "validation" in wanted.keys() - found.keys() and share != 0:
        message = "%s: training rows are held out, and these splits are not read: %s"
        logger.warning(message, where, ", ".join(unread))
    return found


def open_hub(
    where: str, hub_id: str, revision: str | None, *, streaming: bool = False
) -> tuple[Any, datasets.DatasetBuilder]:
    """Open the splits of a dataset in a branch, tag or commit; return them, and their builder."""
    path, config = hub_id, ""
    if not Path(hub_id).is_dir():  # a local folder has no configuration
        path, _, config = hub_id.partition(":")
    with readable_hub(where):
        builder = _make_builder(path, config or None, revision)
        if streaming:
            return builder.as_streaming_dataset(), builder
        builder.download_and_prepare()
        return builder.as_dataset(), builder


def _make_builder(path: str, config: str | None, revision: str | None) -> Any:
    """Make a builder that reads CSV as it is written, unless types of columns are declared.

    pandas would guess them: classes 1.1 and 1.10 would be one, and "None" be missing. What it would
    have guessed may be in the usual cache, so what is read otherwise has one of its own.
    """
    make = partial(datasets.load_dataset_builder, path, config, revision=revision)
    apart = str(Path(datasets.config.HF_DATASETS_CACHE) / "csv-as-written")
    try:
        builder = make()
    except (OSError, ValueError):  # such as without a network
        with suppress(OSError, ValueError):
            return make(cache_dir=apart)
        raise
    if isinstance(builder, Cache) and builder.info.builder_name == "csv":
        return make(cache_dir=apart)
    options = builder.config if isinstance(builder, Csv) else None
    if options is None or options.decimal != "." or any(getattr(options, key) for key in TYPED):
        return builder
    with tempfile.TemporaryDirectory() as folder:  # without the types of an earlier reading
        probe = make(cache_dir=folder, nrows=1)
        split, files = next(iter(probe.config.data_files.items()))
        probe.config.data_files = {split: files[:1]}
        rows = [] if probe.info.features else [*probe.as_streaming_dataset(split)]
    if not rows:
        return builder
    builder = make(cache_dir=apart)
    columns = datasets.Features(dict.fromkeys(rows[0], datasets.Value("string")))
    builder.config.features = builder.info.features = columns
    builder.config.keep_default_na = False
    builder._cast_table = _keep  # a split may lack columns, such as that of labels
    return builder


def _keep(table: Any) -> Any:
    return table


def find_commit(hub_id: str, builder: datasets.DatasetBuilder) -> str | None:
    """Return the commit that a dataset was read from; None for a local folder."""
    return None if Path(hub_id).is_dir() else builder.hash


@contextmanager
def readable_hub(where: str) -> Iterator[None]:
    """Turn errors of a dataset on the Hub into one line with advice."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{where} cannot be fetched from the Hub ({error}); check the name and the network, "
            "or read local files: data_dir for a built-in dataset, else train_file"
        ) from error
    # unknown configurations, loading scripts, files that cannot be parsed
    except (ValueError, RuntimeError, DatasetsError) as error:
        raise ValueError(f"{where} cannot be read ({error}); check its page on the Hub") from error
