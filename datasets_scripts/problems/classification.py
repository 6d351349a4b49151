"""Sentences or pairs of them, each with a class."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from datasets_scripts.files.characters import describe_twins, find_twin
from datasets_scripts.files.readers import Record, shorten
from datasets_scripts.files.values import is_list

from .row_format import Row, RowSource, check_classes, is_numeral, list_names, normalize_value
from .sentences import SentenceFormat


@dataclass(frozen=True)
class ClassificationFormat(SentenceFormat):
    """Rows whose ``label`` is the number of a class."""

    problem_type = "classification"
    text_counts = (1, 2)
    has_classes = True
    own_keys = ("label_column", "labels")
    loss_type = "int64"

    def expected_labels(self, count: int = 2) -> tuple[str, ...] | None:
        return self.labels or tuple(map(str, range(count)))

    def resolve(self, where: str, sources: Mapping[str, RowSource]) -> Self:
        train = sources["train"]
        if self.labels is None:
            self._check_single(where, train)
        labels = self.labels or train.class_names(self) or infer_labels(train.labels(self))
        check_classes(where, "labels", labels, f"label_column={self.label_column!r}")
        return replace(self, labels=labels)

    def _check_single(self, where: str, train: RowSource) -> None:
        """Refuse lists of labels, whose text would become the name of a class."""
        for value in train.labels(self):
            if isinstance(value, list) or (isinstance(value, str) and is_list(value)):
                raise ValueError(
                    f"{where}: label_column={self.label_column!r} has lists of labels, such as "
                    f"{shorten(str(value))}; write problem_type: multi_label_classification, or "
                    "for one label a row its name alone"
                )

    def from_hub(self, number: int, values: Row, names: tuple[str, ...] | None) -> Record:
        label: Any = values.get(self.label_column or "")
        has_names = names is not None and set(names) == set(self.labels or ())
        if names is not None and has_names and isinstance(label, int) and 0 <= label < len(names):
            values = {**values, str(self.label_column): names[label]}
        return Record(number + 1, values)

    def parse_label(self, text: str) -> int:
        labels = self.labels or ()
        if text in labels:
            return labels.index(text)
        # numbers stand for names only if no name could be confused with one
        has_numbers = not any(is_numeral(label) for label in labels)
        if has_numbers and text in map(str, range(len(labels))):
            return int(text)
        if twin := find_twin(text, labels):
            raise ValueError(f"the labels {describe_twins(text, twin)}")
        known = list_names(labels)
        known += f" or their numbers 0 to {len(labels) - 1}" if has_numbers else ""
        raise ValueError(f"label {shorten(text)!r} is not among the labels {known}")


def infer_labels(values: Iterable[Any]) -> tuple[str, ...]:
    """List the distinct labels: numbers by size if all are numbers, else sorted as text."""
    labels = {text for value in values if (text := normalize_value(value))}
    if all(is_numeral(label) for label in labels):
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    return tuple(sorted(labels))
