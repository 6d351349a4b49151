"""The picture of a run: a small plot for every loss and every score."""

import pytest
from matplotlib.figure import Figure

from trainers import make_problems
from trainers.reports.figures import _draw, arrange, find_panels, plot_history

PROBLEMS = make_problems({"moods": "classification", "my_scores": "similarity"})
HISTORY = [
    {"step": 1, "loss": 1.0, "loss_moods": 1.2},
    {"step": 2, "loss": 0.8, "loss_moods": 1.0, "loss_my_scores": 0.6},
    {"step": 2, "eval_moods_accuracy": 0.5, "eval_moods_loss": 1.0},
    {"step": 2, "eval_my_scores_pearson": 0.1},
    {"step": 2, "eval_mean": 0.3, "eval_leaderboard": 0.5},
    {"step": 4, "eval_moods_accuracy": 0.4, "eval_moods_loss": float("nan")},
    {"step": 4, "train_loss": 0.9},
]


def test_the_plot_is_a_png(tmp_path):
    path = tmp_path / "plots" / "history.png"

    plot_history(HISTORY, PROBLEMS, path)

    assert path.read_bytes().startswith(b"\x89PNG")
    assert [entry.name for entry in path.parent.iterdir()] == ["history.png"]


def test_an_empty_history_is_not_plotted(tmp_path):
    plot_history([{"step": 2, "train_loss": 0.9}], PROBLEMS, tmp_path / "history.png")

    assert list(tmp_path.iterdir()) == []


def test_losses_of_different_tasks_share_no_panel():
    panels = find_panels(HISTORY, PROBLEMS)

    assert {panel.title: panel.lines for panel in panels} == {
        "moods: loss": {"training": [[1, 1.2], [2, 1.0]], "held out": [[2, 1.0]]},
        "my_scores: loss": {"training": [[2, 0.6]]},
        "moods: accuracy": {"held out": [[2, 0.5], [4, 0.4]]},
        "my_scores: pearson": {"held out": [[2, 0.1]]},
        "mean of all tasks": {"held out": [[2, 0.3]]},
    }
    assert [panel.is_loss for panel in panels] == [True, True, False, False, False]


def test_one_task_has_no_mean():
    panels = find_panels(HISTORY, make_problems({"moods": "classification"}))

    assert [panel.title for panel in panels] == ["moods: loss", "moods: accuracy"]


def test_every_part_of_the_loss_of_pre_training_has_a_panel():
    history = [{"step": 3, "loss_text_mlm": 8.0, "loss_text_nsp": 1.0, "eval_text_mlm_loss": 7.0}]

    mlm, nsp, *_ = find_panels(history, make_problems({"text": "pretraining"}))

    assert mlm.lines == {"training": [[3, 8.0]], "held out": [[3, 7.0]]}
    assert nsp.lines == {"training": [[3, 1.0]]}


def test_the_best_evaluation_is_named_and_ringed():
    loss, _, score, *_ = find_panels(HISTORY, PROBLEMS)
    axes = Figure().subplots(1, 2)

    for place, panel in zip(axes, (loss, score), strict=True):
        _draw(place, panel)

    assert axes[0].get_title(loc="left") == "moods: loss"
    assert axes[1].get_title(loc="left") == "moods: accuracy\nbest 0.500 at step 2"
    ring = axes[1].lines[-1]
    assert ring.get_fillstyle() == "none"
    assert [*ring.get_xdata(), *ring.get_ydata()] == [2, 0.5]


@pytest.mark.parametrize("task", ["$5 a row", "a $x_{ and } $", "$\\no_formula$"])
def test_a_name_in_the_picture_is_no_formula(tmp_path, task):
    history = [{"step": 1, f"loss_{task}": 1.0}]

    plot_history(history, make_problems({task: "classification"}), tmp_path / "history.png")

    assert (tmp_path / "history.png").is_file()


def test_scores_begin_a_row_of_their_own():
    panels = find_panels(HISTORY, PROBLEMS)

    def titles(rows):
        return [[panel.title.partition(":")[2].strip() for panel in row] for row in rows]

    assert titles(arrange(panels, one_group=False)) == [
        ["loss", "loss"],
        ["accuracy", "pearson", ""],
    ]
    assert [len(row) for row in arrange(panels, one_group=True)] == [4, 1]
