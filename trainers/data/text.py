"""Batches of tasks that train on text without labels.

Source: Devlin et al. 2019, section 3.1.
"""

from dataclasses import dataclass

from .masking import Masking
from .rows import Joined


@dataclass(frozen=True)
class TextTask:
    """Masks and pair labels of the batches of a task.

    Args:
        masking: Chooses the tokens to be predicted; None if none are.
        is_paired: Whether the task predicts if the segments of a pair follow each other.
        position: Position of the task among all tasks.
    """

    masking: Masking | None
    is_paired: bool
    position: int = 0

    def prepare(self, joined: Joined) -> Joined:
        """Draw the masks of a batch, or use the labels of its pairs.

        Raises:
            ValueError: If the rows have no numbers, or are not pairs.
        """
        if self.is_paired and joined.next_sentence_label is None:
            raise ValueError(
                f"task {joined.task!r} predicts whether one segment follows the other, but its "
                "rows are not segment pairs"
            )
        if self.masking is None:
            return joined._replace(labels=joined.next_sentence_label, next_sentence_label=None)
        if joined.places is None:
            raise ValueError(
                f"masks of task {joined.task!r} need rows of a TaskDataset without a format, which "
                "have numbers"
            )
        numbers, rows = joined.places
        draws = self.masking.draw(self.position, numbers, rows, joined.lengths)
        ids, labels = self.masking.apply(joined.input_ids, joined.lengths, draws)
        follows = joined.next_sentence_label if self.is_paired else None
        return joined._replace(
            input_ids=ids, labels=None, token_labels=labels, next_sentence_label=follows
        )
