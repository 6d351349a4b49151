"""The GLUE benchmark: its score, and the files of predictions that its server expects."""

import logging
import os
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import datasets

from trainers.data.rows import Rows
from trainers.files import replaced_when_done, write_text
from trainers.problems.metrics import glue_score
from trainers.training.multitask import MultiTaskTrainer

if TYPE_CHECKING:
    from .results import Results, RunOutputs

logger = logging.getLogger(__name__)

# All files of a submission; AX are the predictions of the diagnostic set by the model of MNLI.
GLUE_FILES = "AX CoLA MNLI-m MNLI-mm MRPC QNLI QQP RTE SST-2 STS-B WNLI".split()  # noqa: SIM905
GLUE_FOLDER = "glue"
ZIP_FILE = "submission.zip"
# Files have no date, so that equal predictions make equal files.
NO_DATE = (1980, 1, 1, 0, 0, 0)


def score_glue(trainer: MultiTaskTrainer, results: Mapping[str, "Results"]) -> None:
    """Add the GLUE score to the splits, such as validation, in which all its tasks have labels."""
    tasks = [name for name, task in trainer.tasks.items() if task.in_glue]
    for split in {"train", "validation", "test"} & results.keys():
        if not set(tasks) <= results[split].rows.keys():
            continue
        # with the other sets of a task, such as validation_mismatched
        sets = [found for name, found in results.items() if name.partition("_")[0] == split]
        values = {
            task: [
                found.metrics[f"{task}_{name}"]
                for found in sets
                if task in found.rows
                for name in trainer.problems[task].headline
            ]
            for task in tasks
        }
        results[split].metrics["glue"] = glue_score(values)


@dataclass(frozen=True)
class GlueFile:
    """A file of predictions."""

    name: str  # without suffix, one of ``GLUE_FILES``
    labels: tuple[str, ...] | None = None  # names of the classes; None for numbers
    num_rows: int | None = None  # of the official file, valid or not; None derives it from the ids


def format_glue(ids: Sequence[str], predictions: Sequence[float], file: GlueFile) -> str:
    """Format ``index<TAB>prediction`` of every row, below a header.

    The server rejects missing rows: those that could not be read get the most frequent prediction.
    """
    texts: dict[str, str] = {}
    for name, prediction in zip(ids, predictions, strict=True):
        if file.name == "STS-B":  # the only scores, from 0 to 5
            texts[name] = f"{min(max(float(prediction), 0.0), 5.0):.3f}"
        else:
            number = int(prediction)
            texts[name] = str(number) if file.labels is None else file.labels[number]
    if all(name.isdecimal() for name in texts):
        most = Counter(texts.values()).most_common(1)[0][0]
        order = [str(row) for row in range(max(file.num_rows or 0, max(map(int, texts)) + 1))]
        if missing := [name for name in order if name not in texts]:
            logger.warning(
                "%s: %d rows could not be read and are written as %s: %s",
                *(file.name, len(missing), most, ", ".join(missing[:10])),
            )
        texts = {name: texts.get(name, most) for name in order}
    lines = ["index\tprediction", *(f"{name}\t{text}" for name, text in texts.items())]
    return "\n".join(lines) + "\n"


def write_submission(
    output_dir: str | os.PathLike[str],
    files: Mapping[tuple[str, str], GlueFile],
    encoded: Mapping[str, Mapping[str, Rows]],
    outputs: "RunOutputs",
) -> Path | None:
    """Write the predictions of a run as ``glue/CoLA.tsv`` etc., and one archive of them.

    Args:
        output_dir: Folder of the run.
        files: By task and split, the file on the server; the first of equal ones is used.
        encoded: By task and split, the rows with their ids.
        outputs: Those of ``evaluate_run``.

    Returns:
        The archive; None if none of the files was predicted.
    """
    folder = Path(output_dir) / GLUE_FOLDER
    written: dict[str, str] = {}  # by name of the file
    for (task, split), file in files.items():
        if (task, split) not in outputs:
            continue
        if file.name in written:
            logger.warning("task %r: %s is already that of another task", task, file.name)
            continue
        rows: datasets.Dataset = encoded[task][split]
        written[file.name] = format_glue(rows["id"][:], outputs[task, split].predictions, file)
        write_text(folder / f"{file.name}.tsv", written[file.name])
    if not written:
        return None
    with (
        replaced_when_done(folder / ZIP_FILE) as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in sorted(written):
            entry = zipfile.ZipInfo(f"{name}.tsv", NO_DATE)
            archive.writestr(entry, written[name], zipfile.ZIP_DEFLATED)
    return folder / ZIP_FILE


def missing_files(archive: Path) -> list[str]:
    """List the files that the server expects and an archive lacks."""
    with zipfile.ZipFile(archive) as found:
        names = {Path(name).stem for name in found.namelist()}
    return [name for name in GLUE_FILES if name not in names]
