"""Predictions of the unlabelled rows of GLUE as its server takes them: gluebenchmark.com."""

import logging
import os
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.data.task_dataset import Rows
from trainers.files import replaced_when_done, write_text

from .results import Outputs

logger = logging.getLogger(__name__)

# All files of a submission; AX are the predictions of the diagnostic set by the model of MNLI.
GLUE_FILES = (
    *("AX", "CoLA", "MNLI-m", "MNLI-mm", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B", "WNLI"),
)
LOW, HIGH = 0.0, 5.0  # scores of STS-B
GLUE_FOLDER = "glue"
ZIP_FILE = "submission.zip"
# A file says nothing of when it was made, so that equal predictions make equal files.
NO_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class GlueFile:
    """What the predictions of some rows are called.

    Args:
        name: File without suffix, one of ``GLUE_FILES``.
        problem_type: ``classification``, ``paraphrase`` or ``similarity``.
        labels: Names of the classes, where the server wants names; None for numbers.
        num_rows: Rows of the official file, readable or not; None for as many as the ids tell.
    """

    name: str
    problem_type: str
    labels: tuple[str, ...] | None = None
    num_rows: int | None = None

    def format(self, prediction: float) -> str:
        """Write a class index, 0 or 1, or a score as the server reads it."""
        if self.problem_type == "similarity":
            return f"{min(max(float(prediction), LOW), HIGH):.3f}"
        return str(int(prediction)) if self.labels is None else self.labels[int(prediction)]


def write_glue_file(
    path: str | os.PathLike[str],
    ids: Sequence[str],
    predictions: Sequence[float],
    file: GlueFile,
) -> None:
    """Write ``index<TAB>prediction`` of every row, below a header; the whole file or nothing.

    The server refuses a file that lacks a row. A row that could not be read, and so was left out,
    gets the most frequent prediction, with a warning.

    Args:
        path: File to write.
        ids: Index of each row in the official test file, (N,).
        predictions: Class indices, 0 or 1 for a paraphrase, or scores, (N,).
        file: How they are written.

    Raises:
        ValueError: If there are no rows, or the numbers of ids and predictions differ.
    """
    if not len(ids) or len(ids) != len(predictions):
        raise ValueError(
            f"{path}: {len(ids)} ids and {len(predictions)} predictions; expected one each, and "
            "at least one"
        )
    texts = [file.format(prediction) for prediction in predictions]
    found = dict(zip(ids, texts, strict=True))
    if all(name.isdecimal() for name in ids):
        most = Counter(texts).most_common(1)[0][0]
        count = max(file.num_rows or 0, max(map(int, ids)) + 1)
        order = [str(number) for number in range(count)]
        if missing := [name for name in order if name not in found]:
            logger.warning(
                "%s: %d rows could not be read and are written as %s: %s",
                *(path, len(missing), most, ", ".join(missing[:10])),
            )
        found = {name: found.get(name, most) for name in order}
    lines = ["index\tprediction", *(f"{name}\t{text}" for name, text in found.items())]
    write_text(path, "\n".join(lines) + "\n")


def write_submission(
    output_dir: str | os.PathLike[str],
    files: Mapping[tuple[str, str], GlueFile],
    encoded: Mapping[str, Mapping[str, Rows]],
    outputs: Mapping[tuple[str, str], Outputs],
) -> Path | None:
    """Write the predictions of a run, and all of them in one archive.

    Args:
        output_dir: Folder of the run; ``glue/CoLA.tsv`` and ``glue/submission.zip`` go there.
        files: By task and split what the predictions are called. Of two tasks with the same rows
            the first is taken.
        encoded: By task and split, the rows with their ids.
        outputs: By task and split, what the model said of them.

    Returns:
        The archive; None if no rows of a server's file were predicted.
    """
    folder = Path(output_dir) / GLUE_FOLDER
    written: dict[str, Path] = {}
    for (task, split), file in files.items():
        if (task, split) not in outputs:
            continue
        if file.name in written:
            logger.warning("task %r: %s is already that of another task", task, file.name)
            continue
        rows: Any = encoded[task][split]
        path = folder / f"{file.name}.tsv"
        write_glue_file(path, rows["id"][:], outputs[task, split].predictions.tolist(), file)
        written[file.name] = path
    if not written:
        return None
    with (
        replaced_when_done(folder / ZIP_FILE) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in sorted(written):
            # the server wants them in no folder
            entry = zipfile.ZipInfo(f"{name}.tsv", NO_DATE)
            archive.writestr(entry, written[name].read_bytes(), zipfile.ZIP_DEFLATED)
    return folder / ZIP_FILE


def missing_files(archive: Path) -> list[str]:
    """List what the server wants beside the files of an archive."""
    with zipfile.ZipFile(archive) as found:
        names = {Path(name).stem for name in found.namelist()}
    return [name for name in GLUE_FILES if name not in names]
