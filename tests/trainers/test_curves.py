"""Series out of a log, and where a plot puts them."""

import re

import pytest

from trainers import PROBLEMS
from trainers.reports.plots.curves import MOST_POINTS, task_curves
from trainers.reports.plots.positions import (
    MOST_MARKS,
    place_strip,
    plot_calibration,
    plot_curves,
    plot_scatter,
)

HISTORY = [
    {"step": 1, "loss": 1.0, "loss_moods": 1.2},
    {"step": 2, "loss": 0.8, "loss_moods": 1.0, "loss_moods_2": 7.0},
    {"step": 2, "eval_moods_accuracy": 0.5, "eval_moods_macro_f1": 0.4, "eval_moods_loss": 1.1},
    {"step": 2, "train_loss": 0.9},
]


def test_losses_and_metrics_of_a_task_are_separate():
    loss, metrics = task_curves(HISTORY, PROBLEMS["classification"]("moods"))

    assert {one["name"]: one["points"] for one in loss["series"]} == {
        "training": [(1, 1.2), (2, 1.0)],
        "held out": [(2, 1.1)],
    }
    assert {one["name"]: one["points"] for one in metrics["series"]} == {
        "accuracy": [(2, 0.5)],
        "macro_f1": [(2, 0.4)],
    }


def test_a_task_that_was_not_logged_has_no_plots():
    assert task_curves(HISTORY, PROBLEMS["paraphrase"]("pairs")) == []


def test_both_losses_of_pre_training_have_their_plots():
    history = [
        {"step": 3, "loss_text": 9.0, "loss_text_mlm": 8.0, "loss_text_nsp": 1.0},
        {"step": 3, "eval_text_mlm_loss": 7.0, "eval_text_nsp_loss": 0.9, "eval_text_loss": 7.9},
        {"step": 3, "eval_text_perplexity": 1096.6, "eval_text_mlm_accuracy": 0.1},
    ]

    mlm, nsp, metrics = task_curves(history, PROBLEMS["pretraining"]("text"))

    assert [one["points"] for one in mlm["series"]] == [[(3, 8.0)], [(3, 7.0)]]
    assert [one["points"] for one in nsp["series"]] == [[(3, 1.0)], [(3, 0.9)]]
    assert [one["name"] for one in metrics["series"]] == ["mlm_accuracy"]


def test_the_only_loss_of_masked_tokens_is_the_loss_of_the_task():
    history = [{"step": 3, "loss_text": 8.0}, {"step": 3, "eval_text_mlm_loss": 7.0}]

    (mlm,) = task_curves(history, PROBLEMS["masked_lm"]("text"))

    assert [one["points"] for one in mlm["series"]] == [[(3, 8.0)], [(3, 7.0)]]


def test_distances_of_vectors_have_a_separate_plot():
    names = ("loss", "accuracy", "mrr", "alignment", "uniformity")
    history = [{"step": 3, "loss_near": 2.0}, {"step": 3} | {f"eval_near_{n}": 0.5 for n in names}]

    plots = task_curves(history, PROBLEMS["contrastive"]("near"))

    assert {plot["title"]: [one["name"] for one in plot["series"]] for plot in plots} == {
        "Loss": ["training", "held out"],
        "Metrics on held-out rows": ["accuracy", "mrr"],
        "Lower is better": ["alignment", "uniformity"],
    }


def test_thresholds_are_not_among_the_metrics():
    names = ("loss", "exact_match", "f1", "best_f1", "best_f1_threshold")
    history = [{"step": 3} | {f"eval_quiz_{name}": 0.5 for name in names}]

    _, metrics = task_curves(history, PROBLEMS["question_answering"]("quiz"))

    shown = [one["name"] for one in metrics["series"]]
    assert shown == ["f1", "exact_match", "best_f1"]


def test_a_long_series_is_thinned_with_a_note():
    history = [{"step": step, "loss_moods": 1 / step} for step in range(1, 5001)]

    ((series,),) = (
        plot["series"] for plot in task_curves(history, PROBLEMS["classification"]("moods"))
    )

    assert len(series["points"]) == MOST_POINTS
    assert series["points"][0] == (1, 1.0)
    assert series["points"][-1] == (5000, 1 / 5000)
    assert series["logged"] == 5000


def test_a_plot_places_values_between_its_ticks():
    series = [{"name": "training", "points": [(0, 2.0), (5, 1.0), (10, 0.0)]}]

    plot = plot_curves(series, kept=5)

    (line,) = plot.series
    assert line.style == "train"
    # halfway, on both axes
    assert line.marks[1].x == pytest.approx((50 + 346) / 2)
    assert line.marks[1].y == pytest.approx((10 + 192) / 2)
    assert line.line.split()[0] == "50,10"
    assert plot.rule == line.marks[1].x
    assert [text for _, text in plot.x_ticks] == ["0", "2", "4", "6", "8", "10"]
    assert line.summary == "training: 2 at step 0, 0 at step 10, between 0 and 2"


def test_values_that_are_no_numbers_are_left_out():
    nothing = {"name": "held out", "points": [(1, float("nan")), (2, float("inf"))]}
    something = {"name": "training", "points": [(1, float("nan")), (2, 3.0)]}

    assert plot_curves([nothing], kept=None) is None
    plot = plot_curves([nothing, something], kept=None)
    assert [len(series.marks) for series in plot.series] == [0, 1]
    assert plot.series[0].summary == "held out: no finite value"


def test_many_points_are_a_line_without_marks():
    points = [(step, 0.5) for step in range(MOST_MARKS + 1)]

    (line,) = plot_curves([{"name": "accuracy", "points": points}], kept=None).series

    assert line.marks == []
    assert line.line.count(",") == len(points)


def test_ticks_of_steps_are_whole_and_apart():
    plot = plot_curves([{"name": "training", "points": [(1, 0.1), (2, 0.3)]}], kept=None)

    assert all(re.fullmatch(r"\d+", text) for _, text in plot.x_ticks)
    # 0.1 + 0.2 is no tick
    assert all(len(text) <= 4 for _, text in plot.y_ticks)
    places = [place for place, _ in plot.x_ticks]
    assert places == sorted(set(places))


def test_a_bin_has_its_standard_error_within_the_axes():
    bins = [{"confidence": 0.5, "accuracy": 0.5, "rows": 25}]
    bins += [{"confidence": 1.0, "accuracy": 1.0, "rows": 3}]

    middle, right = plot_calibration(bins).series[0].marks

    # sqrt(0.5 * 0.5 / 25) = 0.1 of 182 units
    assert middle.low - middle.y == pytest.approx(18.2, abs=0.1)
    assert middle.y - middle.high == pytest.approx(18.2, abs=0.1)
    assert (right.y, right.high) == (10, 10)


def test_points_on_the_diagonal_are_on_it():
    plot = plot_scatter([[0.0, 0.0], [5.0, 5.0]], (0, 5))

    assert plot.diagonal == (*plot.points[0], *plot.points[1])


def test_a_strip_reaches_to_a_negative_correlation():
    strip = place_strip({"train": (0.9, 0.2), "dev": (-0.3, None)})

    assert strip["ticks"][0][1].startswith("-0")
    assert 10 <= strip["marks"]["dev"].x < strip["marks"]["train"].x
    # never beyond 1
    assert strip["marks"]["train"].high == 290
    assert place_strip({"dev": (float("nan"), 0.1)})["marks"] == {}


def test_a_strip_is_magnified_but_not_without_end():
    close = place_strip({"train": (0.95, 0.01), "dev": (0.94, 0.01)})
    apart = place_strip({"train": (0.95, 0.01), "dev": (0.35, 0.01)})

    shown = [[float(text) for _, text in strip["ticks"]] for strip in (close, apart)]
    assert shown[0][0] == 0.75
    assert shown[1][0] == 0.2
    assert shown[0][-1] <= 1
    assert close["marks"]["dev"].x > 200
    assert apart["marks"]["dev"].x < 70


@pytest.mark.parametrize(("lower_is_better", "step"), [(True, 3), (False, 2)])
def test_the_best_evaluation_is_marked(lower_is_better, step):
    training = {"name": "training", "points": [(1, 0.1), (4, 9.0)]}
    held_out = {"name": "held out", "points": [(1, 0.5), (2, 0.9), (3, 0.2), (4, 0.3)]}

    plot = plot_curves([training, held_out], kept=None, lower_is_better=lower_is_better)

    assert (plot.best.name, plot.best.step) == ("held-out loss", step)
    mark = plot.series[1].marks[step - 1]
    assert (plot.best.x, plot.best.y) == (mark.x, mark.y)


def test_a_single_evaluation_is_not_the_best_of_any():
    training = {"name": "training", "points": [(1, 0.1), (4, 0.2)]}
    held_out = {"name": "held out", "points": [(4, 0.3)]}

    assert plot_curves([training], kept=None).best is None
    assert plot_curves([training, held_out], kept=None).best is None


def test_a_plot_of_metrics_knows_its_direction():
    history = [{"step": 3} | {f"eval_near_{n}": 0.5 for n in ("loss", "accuracy", "alignment")}]

    plots = task_curves(history, PROBLEMS["contrastive"]("near"))

    assert [plot["lower_is_better"] for plot in plots] == [True, False, True]
