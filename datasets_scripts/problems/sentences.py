"""Rows of one to three sentences, which share everything but their label."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import datasets
import pyarrow as pa

from datasets_scripts.files.readers import FileFormat, Record, read_records, shorten
from datasets_scripts.files.splits import is_test

from .encoding.document_windows import DocumentWindows
from .encoding.sequences import WINDOWS, encode_rows
from .row_format import Row, RowFormat, add_id, is_numeral, make_features, normalize_value

UNDECIDED = "undecided"  # the problem of a row on which the annotators did not agree
NO_LABEL = "no label"  # that of a row that lacks one

UNLIMITED = 10**9  # tokens; more than any row has


@dataclass(frozen=True)
class SentenceFormat(RowFormat):
    """Rows with ``sentence1``, ``sentence2`` (pairs only) and ``label``."""

    has_unlabeled_rows = True
    row_type = "int64"  # of the label in rows
    loss_type = "float32"  # of the label in encoded rows

    @abstractmethod
    def parse_label(self, text: str) -> float | int:
        """Convert a label; the message of a ValueError is the problem of the row."""

    @property
    def text_names(self) -> tuple[str, ...]:
        return tuple(f"sentence{number}" for number, _ in enumerate(self.text_columns, start=1))

    @property
    def shared_names(self) -> tuple[str, ...]:
        return self.text_names if len(self.text_columns) > 1 else ()

    @property
    def features(self) -> datasets.Features:
        sentences = dict.fromkeys(self.text_names, "string")
        return make_features(
            id="string", **sentences, label=self.row_type, line="int64", problem="string"
        )

    def read(self, path: str, split: str, file_format: FileFormat) -> Iterator[Record]:
        if is_test(split):
            file_format = replace(file_format, header=None)
        return read_records(path, self.required_columns(split), file_format=file_format)

    def to_row(self, record: Record, number: int, split: str) -> Row:
        texts, row_id, text_problem = self.read_texts(record)
        label, problem = self.find_label(record, split)
        if problem == NO_LABEL and self.skips_unlabelled:
            problem = UNDECIDED
        if problem != UNDECIDED:
            problem = record.problem or ", ".join(filter(None, (text_problem, problem)))
            problem = add_id(problem, row_id)
        return {
            "id": row_id or str(number),
            **dict(zip(self.text_names, map(str.strip, texts), strict=True)),
            "label": None if problem else label,
            "line": record.line,
            "problem": problem,
        }

    def texts(self, rows: datasets.Dataset) -> Iterator[str]:
        columns = [rows[name][:] for name in self.text_names]
        return (text for row in zip(*columns, strict=True) for text in row)

    def encode(self, rows: datasets.Dataset, tokenizer: Any, **options: Any) -> datasets.Dataset:
        return encode_rows(rows, tokenizer, label_type=self.loss_type, **options)

    def cut_share(self, rows: datasets.Dataset, tokenizer: Any, **options: Any) -> float | None:
        texts = rows.select_columns(["id", *self.text_names])
        if options.get("truncation") == WINDOWS:
            return self._cut_share_of_windows(texts, tokenizer, **options)
        kept, whole = (
            _count_tokens(self.encode(texts, tokenizer, **options | {"max_length": length}))
            for length in (options["max_length"], UNLIMITED)
        )
        return 1 - kept / whole

    def _cut_share_of_windows(
        self,
        texts: datasets.Dataset,
        tokenizer: Any,
        *,
        pair_encoding: str | None,
        truncation: str,
        max_length: int,
        window_overlap: int,
        max_windows: int,
    ) -> float:
        """Return the share of the tokens that are in no window."""
        own: dict[str, Any] = {"pair_encoding": pair_encoding, "truncation": truncation}
        whole = self.encode(texts, tokenizer, max_length=UNLIMITED, **own)
        special = tokenizer.num_special_tokens_to_add(pair=False)
        windows = DocumentWindows(max_length, window_overlap, max_windows)
        lengths = [len(ids) for row in whole["input_ids"] for ids in row]
        return windows.count_cut(lengths, special) / sum(lengths)

    def find_label(self, record: Record, split: str) -> tuple[Any, str]:
        """Return the label of a record and an empty text, or None and the problem."""
        if self.label_column is None:
            return None, ""
        text = normalize_value(record.values.get(self.label_column))
        if text in self.undecided:
            return None, UNDECIDED
        try:
            if text:
                return self.parse_label(text), ""
            problem = NO_LABEL
        except ValueError as error:
            problem = str(error)
        # GLUE writes -1 where the label of a test row is kept secret
        return None, "" if is_test(split) and text in {"", "-1"} else problem


def _count_tokens(rows: datasets.Dataset) -> int:
    """Count the tokens of encoded rows, of one sequence each or of several."""
    ids = rows.data.column("input_ids").combine_chunks()
    while not pa.types.is_integer(ids.type):
        ids = ids.flatten()
    return len(ids)


def parse_number(text: str) -> float:
    """Convert a label to a number."""
    number = {"true": "1", "false": "0"}.get(text.lower(), text)
    if not is_numeral(number):
        raise ValueError(f"label {shorten(text)!r} is not a number")
    return float(number)
