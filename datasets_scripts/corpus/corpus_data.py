"""The keys of a corpus in a recipe, checked and completed with defaults."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from datasets_scripts.catalog import DATASETS
from datasets_scripts.checking import (
    INNER,
    Count,
    Fraction,
    Patterns,
    Share,
    Text,
    check_keys,
    check_revision,
    option,
)
from datasets_scripts.task_data import TaskData
from modeling_minbert import unknown

SAMPLE_TEXT = "sample_text"
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


@dataclass(frozen=True)
class CorpusData:
    """A text for pretraining; ``from_recipe`` makes it from the keys of a recipe.

    Args:
        name: Name of the corpus.
        dataset: ``sample_text``, a built-in dataset of a task, for its sentences, or
            ``owner/name`` on the Hub.
        data_dir: Folder of the local files.
        hub_id: ``owner/name`` or ``owner/name:config`` on the Hub, or a local folder with the
            layout of a dataset on the Hub.
        revision: Branch, tag or commit of the dataset on the Hub; None for its default branch.
        train_file: Files of the training text, as paths or patterns (``texts/*.txt``): plain text,
            also without a suffix, JSON lines, CSV, TSV or Parquet, by suffix; all but Parquet may
            be compressed, as ``wiki.txt.gz`` (gz, bz2, xz or zst).
        validation_file: Files of the held-out text.
        validation_share: Fraction of the documents that is held out if there is no held-out text,
            in [0, 1).
        text_column: Column of the text, in all formats but plain text, and on the Hub; each row is
            a document.
        documents: Unit of a document in a text file: ``blank_line`` (blank lines separate
            documents), ``file`` or ``line``.
        sentences: ``split`` splits running prose into sentences, by the rules of English; ``line``
            treats a line as one, in any language.
        streaming: Whether a text of the Hub is read without storing it; files always are. Its
            tokens are stored, so it is fetched once, and twice more to train a vocabulary on it.
        max_documents: Maximum documents of a split.
        max_invalid_fraction: Tolerated fraction of invalid documents of a split, in [0, 1].
    """

    name: str = field(metadata=INNER)
    dataset: Text | None = option(None)
    data_dir: Text | None = option(None)
    hub_id: Text | None = option(None)
    revision: Text | None = option(None)
    train_file: Patterns | None = option(None)
    validation_file: Patterns | None = option(None)
    validation_share: Share = option(0.05)
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

        Args:
            name: Name of the corpus.
            mapping: Its keys, as parsed from YAML.
            data_dir: Default folder of the built-in datasets.

        Raises:
            ValueError: If a key or a value is unknown, missing, or contradicts another one.
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
        if data.validation_file is not None and "validation_share" in given:
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
    def hub_dataset(self) -> str | None:
        """Name of the dataset on the Hub; None for local data."""
        if self.hub_id is None or Path(self.hub_id).exists():
            return None
        return self.hub_id.partition(":")[0]

    @property
    def where(self) -> str:
        """Owner of the keys, for messages."""
        return f"corpus {self.name!r}"

    @property
    def source(self) -> str:
        """Name of the source, for messages."""
        return self.hub_id or self.dataset or ", ".join(self.train_file or ())

    def to_task(self) -> TaskData:
        """Describe the built-in task whose sentences are the text.

        Raises:
            ValueError: If the folder of the task is missing.
        """
        keys = {"dataset": self.dataset, "data_dir": self.data_dir}
        return TaskData.from_recipe(
            self.name, keys | {"max_invalid_fraction": self.max_invalid_fraction}
        )
