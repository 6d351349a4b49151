"""Multiple choice: one of S choices for each row."""

from typing import Any

import datasets
import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from trainers.data.rows import FlatRows
from trainers.data.task_dataset import Rows

from .base.labelled import ACCURACY, ClassProblem, Predicted
from .base.problem import quote, shorten_quote
from .measures.analysis import Analysis


class MultipleChoice(ClassProblem):
    """The right one of several choices; predictions and labels are their indices, (N,)."""

    problem_type = "multiple_choice"
    metrics = (ACCURACY,)
    hub_task = pipeline_tag = "multiple-choice"
    header = "id \t Predicted_Choice \n"
    shares_rows = False  # a row is several sequences
    has_classes = False  # the same place is another choice in every row

    @property
    def label_range(self) -> tuple[float, float] | None:
        count = self.head.get("num_choices")
        return None if count is None else (0, count - 1)

    def check(self, where: str, rows: Rows) -> None:
        super().check(where, rows)
        sizes, count = _count_sequences(rows), self.head.get("num_choices")
        if None in sizes or len(sizes) > 1 or (count is not None and sizes - {count}):
            raise ValueError(
                f"{where} is of a multiple_choice task: input_ids and token_type_ids must be a "
                f"list of {count or 'S'} sequences, one for each choice, for every row"
            )

    def decide(self, logits: NDArray[Any]) -> NDArray[Any]:
        return logits.argmax(axis=-1)

    @staticmethod
    def format_value(value: float) -> str:
        return str(int(value))

    def name_of(self, number: int) -> str:
        return str(number)

    def probabilities(self, logits: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(softmax(self.scale(logits), axis=1))

    def find_label_issues(self, outputs: Predicted) -> None:
        return None  # labels are compared by class

    def summarize(self, outputs: Predicted) -> Analysis:
        """Summarize by the place of the choice; the places of two choices are not confused."""
        summary = super().summarize(outputs)
        names = [{**row, "name": f"choice {row['name']}"} for row in summary["distribution"]]
        kept = {name: summary[name] for name in ("classes", "calibration")}
        return {**kept, "distribution": names}

    def analyse(
        self, outputs: Predicted, rows: Any, texts: datasets.Dataset | None, examples: int
    ) -> dict[str, Any]:
        """Add the texts of the choices to the errors."""
        analysis = super().analyse(outputs, rows, texts, examples)
        if texts is None:
            return analysis
        for error, (row, _) in zip(
            analysis["errors"], self.find_errors(outputs, examples), strict=True
        ):
            choices = [
                f"{number}: {shorten_quote(text)}"
                for number, text in enumerate(texts[row]["choices"])
            ]
            error["texts"] = [*quote(texts[row]), *choices]
            for key in ("label", "prediction"):
                error[key] = choices[int(error[key])]
        return analysis

    @property
    def card_example(self) -> str:
        question = '"A question?", ' if self.head.get("has_question") else ""
        return f'[("A context.", {question}["A choice.", "Another choice."])]'


def _count_sequences(rows: Any) -> set[int | None]:
    """Return the numbers of sequences of rows, None for a single list; nothing with a format."""
    if rows.format["type"] is not None:
        return set()
    flat = FlatRows.read(rows)
    if flat is not None:
        return {flat.tokens["input_ids"].per_row}
    lists = rows["input_ids"][:]
    return {len(row) if row and isinstance(row[0], list) else None for row in lists}
