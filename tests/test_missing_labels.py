"""Rows labelled -100 count in no metric, error, table or loss; skipped rows make no classes."""

import numpy as np
import pytest

from tests.loss_cases import CASES, NONE, make_rows, make_task, make_trainer
from tests.trainers.pages import read_blocks
from trainers import FinishedRun, RunFacts, Task, evaluate_run, report_run

NAMES = {
    kind: next(name for name in CASES if name.startswith(kind))
    for kind in (
        "classification",
        "multi_label_classification",
        "multi_output_classification",
        "paraphrase",
        "similarity",
        "regression",
    )
}


def evaluate(trainer, rows):
    """Evaluate rows; return the metrics without those about time."""
    metrics = trainer.evaluate({"it": rows})
    times = ("runtime", "per_second", "preparation_time")
    return {name: value for name, value in metrics.items() if not name.endswith(times)}


def with_ids(rows):
    return rows.add_column("id", [f"row-{place}" for place in range(len(rows))])


@pytest.mark.parametrize("kind", NAMES)
def test_metrics_and_losses_are_those_of_the_other_rows(tmp_path, kind):
    name = NAMES[kind]
    trainer = make_trainer(tmp_path, name, per_device_eval_batch_size=3)
    rows = with_ids(make_rows(*CASES[name], seed=1))
    has_label = [np.any(np.asarray(label) != NONE) for label in rows["labels"]]
    labelled = rows.select(np.flatnonzero(has_label))
    assert 0 < len(labelled) < len(rows)

    found, expected = evaluate(trainer, rows), evaluate(trainer, labelled)

    assert found == pytest.approx(expected, rel=1e-5)
    (results, outputs), (wanted, _) = (
        evaluate_run(trainer, {"it": {"validation": given}}) for given in (rows, labelled)
    )
    assert results["validation"].rows == {"it": len(labelled)}
    assert results["validation"].metrics == pytest.approx(wanted["validation"].metrics, rel=1e-5)
    errors = (each["validation"].standard_errors["it"] for each in (results, wanted))
    assert next(errors) == pytest.approx(next(errors), rel=1e-5)
    facts = RunFacts("", "", None, {}, {})
    report_run(FinishedRun(trainer, {"it": {"validation": rows}}, results, outputs, facts))
    errors = read_blocks(tmp_path, "it").get("Worst errors", {"rows": []})["rows"]
    listed = {error["id"] for error in errors}
    assert listed <= set(labelled["id"])
    table = trainer.problems["it"].tabulate(outputs["it", "validation"])
    labels = next(column for column_name, column in table.items() if "label" in column_name)
    assert len(labels) == len(rows)
    if len(np.shape(rows["labels"])) == 1:
        assert [bool(label) for label in labels] == has_label


def test_rows_without_any_label_are_refused(tmp_path):
    name = NAMES["classification"]
    kind, head = CASES[name]
    rows = make_rows(kind, head)
    rows = rows.remove_columns("labels").add_column("labels", [NONE] * len(rows))
    tasks = [Task("it", kind, make_task(kind, head).train, rows)]

    with pytest.raises(ValueError, match="task 'it': none of the rows has a label, they are all"):
        make_trainer(tmp_path, name, tasks=tasks).evaluate()
