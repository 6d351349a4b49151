"""Files of predictions: tables for readers, and files for the server of GLUE."""

import csv
import io
import json
import logging
import os
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets

from trainers.data.rows import Rows
from trainers.files import replaced_when_done, write_text
from trainers.problems.base import AnyProblem

from .results import file_split

TEXTS = ("sentence1", "sentence2", "choices")


def write_tables(
    output_dir: str | os.PathLike[str],
    problems: Mapping[str, AnyProblem],
    rows: Mapping[tuple[str, str], datasets.Dataset],
    outputs: Mapping[tuple[str, str], Any],
    *,
    quotes: bool,
) -> None:
    """Write ``predictions/<task>-<split>.csv`` for held-out rows.

    ``rows`` are not encoded, ``outputs`` are those of ``evaluate_run``, and ``quotes`` is whether
    the texts may be shown.
    """
    for (task, split), dataset in rows.items():
        found = outputs.get((task, split))  # none without labels, as in contrastive tasks
        columns = None if found is None else problems[task].tabulate(found)
        if columns is None:
            continue
        texts = [name for name in TEXTS if quotes and name in dataset.column_names]
        table = {"id": dataset["id"][:]}
        for name in texts:
            title = "text" if len(texts) == 1 else name.replace("sentence", "text")
            table[title] = dataset[name][:]
        table |= columns
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table)
        for row in zip(*table.values(), strict=True):
            # a list of texts is written as JSON
            writer.writerow(
                json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
                for value in row
            )
        path = Path(output_dir) / "predictions" / f"{task}-{file_split(split)}.csv"
        write_text(path, file.getvalue())


logger = logging.getLogger(__name__)

# All files of a submission; AX are the predictions of the diagnostic set by the model of MNLI.
GLUE_FILES = "AX CoLA MNLI-m MNLI-mm MRPC QNLI QQP RTE SST-2 STS-B WNLI".split()  # noqa: SIM905
GLUE_FOLDER = "glue"
ZIP_FILE = "submission.zip"
# Files have no date, so that equal predictions make equal files.
NO_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class GlueFile:
    """A file of predictions."""

    name: str  # without suffix, one of ``GLUE_FILES``
    labels: tuple[str, ...] | None = None  # names of the classes; None for numbers
    num_rows: int | None = None  # of the official file, valid or not; None derives it from the ids


def write_submission(
    output_dir: str | os.PathLike[str],
    files: Mapping[tuple[str, str], GlueFile],
    encoded: Mapping[str, Mapping[str, Rows]],
    outputs: Mapping[tuple[str, str], Any],
) -> Path | None:
    """Write the predictions of a run as ``glue/CoLA.tsv`` etc., and one archive of them.

    A file has ``index<TAB>prediction`` of every row, below a header. The server rejects one with
    missing rows: those that could not be read get the most frequent prediction.

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
        rows: Any = encoded[task][split]
        texts: dict[str, str] = {}
        for name, prediction in zip(rows["id"][:], outputs[task, split].predictions, strict=True):
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
        written[file.name] = "\n".join(lines) + "\n"
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
