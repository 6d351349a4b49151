"""Extractive question answering: a span of a passage for each question, or none."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.data.task_dataset import spread_numbers

from .base.problem import Decode, Metric, Problem, check_same_rows, quote
from .measures.analysis import calibrate
from .measures.answers import (
    AnswerSearch,
    QuestionAnswers,
    find_answers,
    keep_places,
    write_answers,
)
from .measures.squad import score_answers, squad_metrics

NO_ANSWER = "no answer"
WINDOW_COLUMNS = ("id", "passage", "first_token", "token_starts", "token_ends", "owned")


class Answered(NamedTuple):
    """Answers to the Q questions."""

    predictions: list[QuestionAnswers]
    labels: list[Sequence[str]] | None  # the right answers of each, if any; None if unknown


class QuestionAnswering(Problem[Answered]):
    """Spans of passages; rows are windows of these."""

    problem_type = "question_answering"
    metrics = (
        Metric("f1"),
        Metric("exact_match"),
        # these need questions without an answer
        Metric("has_answer_f1"),
        Metric("has_answer_exact_match"),
        Metric("no_answer_accuracy"),
        Metric("best_f1"),
        Metric("best_f1_threshold", is_plotted=False),
        Metric("best_exact_match"),
        Metric("best_exact_match_threshold", is_plotted=False),
    )
    joins_rows = True
    label_type = "positions"
    teaching = "tokens"
    hub_task = pipeline_tag = "question-answering"
    is_likelihood = True
    card_example = '[("A question?", "A text with the answer.")]'

    def __init__(
        self, task: str, head: Mapping[str, Any] | None = None, metrics: Sequence[str] = ()
    ) -> None:
        super().__init__(task, head, metrics)
        names = ("max_answer_length", "null_score_diff_threshold")
        given = {name: self.head[name] for name in names if self.head.get(name) is not None}
        self.search = AnswerSearch(**given)

    @property
    def is_v2(self) -> bool:
        """Whether questions can have no answer, as in SQuAD 2.0."""
        return self.search.null_score_diff_threshold is not None

    def choose_rows(self, rows: Any, most: int) -> Any:
        """Choose all windows of evenly spread questions."""
        if len(rows) <= most:
            return rows
        ids = np.asarray(rows["id"][:])
        question_of = np.cumsum(np.append(True, ids[1:] != ids[:-1])) - 1
        count = int(question_of[-1]) + 1
        chosen = spread_numbers(count, max(1, most * count // len(rows)))
        return rows.select(np.flatnonzero(np.isin(question_of, chosen)))

    def gather(self, inputs: Mapping[str, Any], outputs: Any) -> tuple[Tensor, Tensor | None]:
        offsets = inputs.get("cu_seq_lens_q")
        lengths = inputs["attention_mask"].sum(dim=-1) if offsets is None else offsets.diff()
        places = keep_places(outputs["start_logits"], outputs["end_logits"], lengths)
        return places, inputs.get("labels")

    def logits_of(self, outputs: Any) -> Tensor:
        return torch.stack([outputs["start_logits"], outputs["end_logits"]], dim=-1)

    def collect(
        self, values: NDArray[Any], rows: Any, labels: Any = None, decode: Decode | None = None
    ) -> Answered:
        columns = {name: rows[name][:] for name in WINDOW_COLUMNS}
        answers = find_answers(columns, np.asarray(values), self.search)
        if not self.is_labelled(rows):
            return Answered(answers, None)
        right = dict(zip(columns["id"], rows["answers"][:], strict=True))
        return Answered(answers, [right[one.id] for one in answers])

    def compute_metrics(self, outputs: Answered) -> dict[str, float]:
        found, is_v2 = outputs.predictions, self.is_v2
        return squad_metrics(
            [one.text for one in found],
            outputs.labels or [],
            some_impossible=is_v2,
            best_texts=[one.best_text for one in found] if is_v2 else None,
            null_odds=[float(one.null_odds or 0) for one in found] if is_v2 else None,
        )

    def standard_error(self, outputs: Answered, metrics: Mapping[str, float]) -> float:
        f1 = self.sample(outputs)[0]
        return float(f1.std() / math.sqrt(len(f1)))

    def count(self, outputs: Answered) -> int:
        return len(outputs.predictions)

    def sample(self, outputs: Answered) -> tuple[NDArray[Any], NDArray[Any]]:
        texts = [one.text for one in outputs.predictions]
        f1 = score_answers(texts, outputs.labels or [], some_impossible=self.is_v2)[1]
        return f1, np.zeros(len(f1))

    def score(self, values: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
        return values.mean(axis=-1)

    def prediction_file(self, stem: str) -> str:
        return f"{stem}-predictions.json"

    def write(self, folder: Path, stem: str, outputs: Answered, rows: Any) -> None:
        write_answers(folder, outputs.predictions, f"{stem}-")

    def read(
        self, folder: Path, stem: str, ids: Sequence[str], references: NDArray[Any]
    ) -> Answered:
        path = self.find_file(folder, stem)
        try:
            texts: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{str(path)!r} cannot be read ({error}); repeat the run") from None
        check_same_rows(path, list(texts), ids)
        answers = [QuestionAnswers(name, text, [], None) for name, text in texts.items()]
        return Answered(answers, references.tolist())

    def analyse(
        self, outputs: Answered, rows: Any, texts: datasets.Dataset | None, examples: int
    ) -> dict[str, Any]:
        """Summarize answers; errors are those with the lowest F1, the most confident first."""
        found, right = outputs.predictions, list(outputs.labels or ())
        exact, f1 = score_answers([one.text for one in found], right, some_impossible=self.is_v2)
        confidences = np.asarray(list(map(_confidence, found)))
        scored = zip(found, right, exact, f1, strict=True)
        outcomes = Counter(_outcome(one.text, *scores) for one, *scores in scored)
        worst = [row for row in np.lexsort((-confidences, f1)).tolist() if not exact[row]]
        quotes = _quote_questions([found[row].id for row in worst[:examples]], texts)
        return {
            "rows": len(found),
            "outcomes": [{"name": name, "rows": rows} for name, rows in outcomes.most_common()],
            "calibration": calibrate(confidences, exact > 0),
            "errors": [
                {
                    "id": found[row].id,
                    "label": " / ".join(dict.fromkeys(right[row])) or NO_ANSWER,
                    "prediction": found[row].text or NO_ANSWER,
                    "size": float(confidences[row]),
                    "texts": quoted,
                }
                for row, quoted in zip(worst, quotes, strict=False)
            ],
        }


def _confidence(answers: QuestionAnswers) -> float:
    """Return the probability of the chosen answer."""
    return next(answer.probability for answer in answers.n_best if answer.text == answers.text)


def _quote_questions(ids: Sequence[str], texts: datasets.Dataset | None) -> list[list[str]]:
    """Return the texts of some questions; none if nothing may be quoted."""
    if texts is None:
        return [[] for _ in ids]
    known = texts["id"][:]
    return [quote(texts[known.index(name)]) for name in ids]


def _outcome(text: str, answers: Sequence[str], exact: float, f1: float) -> str:
    if not answers:
        return "rightly no answer" if exact else "an answer, though there is none"
    if not text:
        return "no answer, though there is one"
    return "exact match" if exact else "some of the words" if f1 else "other words"
