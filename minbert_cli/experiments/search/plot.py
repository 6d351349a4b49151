"""The trials of a study: a table, and a picture."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainers.files import write_text
from trainers.reports.figures import LIGHT, new_figure, style_axes

from .study import Study, Trial

MOST_COLUMNS = 3
MOST_FIELDS = 8  # panels of more fields would be too small


def write_trials(study: Study, folder: Path, name: str) -> None:
    """Write ``<name>.trials.csv`` and ``<name>.trials.png``."""
    trials = study.trials
    write_text(folder / f"{name}.trials.csv", _format(trials, study.search.objective))
    picture = folder / f"{name}.trials.png"
    picture.unlink(missing_ok=True)
    if any(trial.value is not None for trial in trials):
        _draw(study, trials, picture)


def _format(trials: Sequence[Trial], objective: str) -> str:
    text = io.StringIO()
    fields = list(trials[0].point) if trials else []
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", objective, *fields, "evaluations"])
    for trial in trials:
        values = [json.dumps(value) for value in trial.point.values()]
        reached = " ".join(f"{value:.4f}" for value in trial.reached.values())
        writer.writerow([trial.number, trial.state, trial.value, *values, reached])
    return text.getvalue()


def _draw(study: Study, trials: Sequence[Trial], path: Path) -> None:
    """Draw the objective by trial, and by the value of each field."""
    shares = study.importances()
    fields = sorted(study.search.fields, key=lambda name: -shares.get(name, 0))[:MOST_FIELDS]
    panels = 1 + len(fields)
    across = min(MOST_COLUMNS, panels)
    down = -(-panels // across)
    with new_figure(path, 4.2 * across, 0.8 + 2.9 * down) as figure:
        axes = list(figure.subplots(down, across, squeeze=False, sharey=True).flat)
        _draw_history(axes[0], study, trials)
        for one, name in zip(axes[1:], fields, strict=False):
            share = f" ({shares[name]:.0%} of the variance)" if name in shares else ""
            _draw_field(one, f"{name}{share}", study.search.kinds[name], name, trials)
        for one in axes[panels:]:
            one.set_visible(False)
        keys = {"loc": "outside upper left", "ncols": 3, "fontsize": 8, "frameon": False}
        figure.legend(*axes[0].get_legend_handles_labels(), **keys)
        figure.supylabel(study.search.objective, fontsize=9, color=LIGHT["ink"])


def _draw_history(axes: Any, study: Study, trials: Sequence[Trial]) -> None:
    style_axes(axes, "by trial")
    done = [trial for trial in trials if trial.value is not None]
    places = [trial.number + 1 for trial in done]
    values = [float(trial.value or 0) for trial in done]
    pick = max if study.search.direction == "maximize" else min
    best = [pick(values[: end + 1]) for end in range(len(values))]
    axes.step(places, best, where="post", color=LIGHT["train"], label="best so far")
    axes.plot(places, values, "o", ms=5, color=LIGHT["dev"], label="complete")
    _draw_pruned(axes, [trial.number + 1 for trial in _pruned(trials)], trials)
    axes.xaxis.get_major_locator().set_params(integer=True)


def _pruned(trials: Sequence[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.state == "pruned" and trial.reached]


def _draw_pruned(axes: Any, places: Sequence[Any], trials: Sequence[Trial]) -> None:
    """Draw stopped trials where their last evaluation was."""
    reached = [list(trial.reached.values())[-1] for trial in _pruned(trials)]
    style = {"ms": 5, "mfc": "none", "color": LIGHT["quiet"]}
    if places:
        axes.plot(places, reached, "o", label="stopped early, last evaluation", **style)


def _draw_field(
    axes: Any, title: str, kind: tuple[str, list[Any]], name: str, trials: Sequence[Trial]
) -> None:
    style_axes(axes, title)
    done = [trial for trial in trials if trial.value is not None]
    if kind[0] == "choice":
        names = [value if isinstance(value, str) else json.dumps(value) for value in kind[1]]

        def place(trial: Trial) -> Any:
            return kind[1].index(trial.point[name])

        axes.set_xticks(range(len(names)), names, parse_math=False)
        axes.set_xlim(-0.5, len(names) - 0.5)
    else:

        def place(trial: Trial) -> Any:
            return trial.point[name]

        axes.set_xscale("log" if kind[0] == "loguniform" else "linear")
    axes.plot(
        [place(trial) for trial in done],
        [trial.value for trial in done],
        "o",
        ms=5,
        color=LIGHT["dev"],
    )
    _draw_pruned(axes, [place(trial) for trial in _pruned(trials)], trials)
