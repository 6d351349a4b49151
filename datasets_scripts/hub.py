"""Rows of datasets on the Hub, and the cache of `datasets`."""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
from datasets.exceptions import DatasetsError
from datasets.utils import tqdm

from modeling_minbert import texts

# The cache


PACKAGE = Path(__file__).parent
SILENT_SECONDS = 5  # before a progress bar appears
# Rows, and characters or bytes of them, that are in memory at a time.
MOST_ROWS = 1000
MOST_CHARACTERS = 10_000_000


def hash_sources() -> str:
    """Hash the modules that make rows and tokens: `datasets` does not notice edits of the code."""
    digest = hashlib.sha256()
    for path in (*sorted(PACKAGE.rglob("*.py")), Path(texts.__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def digest_text(text: str) -> int:
    """Hash a text without its white space to a number below 2 ** 64."""
    letters = "".join(text.split())
    return int.from_bytes(hashlib.blake2b(letters.encode(), digest_size=8).digest(), "little")


def count_batch(rows: datasets.Dataset) -> int:
    """Return how many rows to process together: fewer if they are long."""
    return max(1, min(MOST_ROWS, MOST_CHARACTERS * len(rows.data) // (rows.data.nbytes + 1)))


def show_progress(rows: Iterable[Any], title: str, total: int | None = None) -> Iterator[Any]:
    """Yield rows with a progress bar, which appears after a while."""
    return iter(tqdm(rows, desc=title, total=total, unit=" rows", delay=SILENT_SECONDS))


@contextmanager
def progress_bars(*, shown: bool) -> Iterator[None]:
    """Hide the progress bars of `datasets` temporarily, unless they are to be shown."""
    hide = not shown and not datasets.are_progress_bars_disabled()
    if hide:
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        if hide:
            datasets.enable_progress_bars()


# The Hub


def find_builder(
    hub_id: str, revision: str | None, cache_dir: str | Path | None
) -> datasets.DatasetBuilder:
    """Find a dataset on the Hub, in a branch, tag or commit; its rows are not read yet."""
    path, config = split_hub_id(hub_id)
    return datasets.load_dataset_builder(path, config, revision=revision, cache_dir=cache_dir)


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


def split_hub_id(hub_id: str) -> tuple[str, str | None]:
    """Split ``owner/name:config``; a local folder has no configuration."""
    if Path(hub_id).is_dir():
        return hub_id, None
    path, _, config = hub_id.partition(":")
    return path, config or None
