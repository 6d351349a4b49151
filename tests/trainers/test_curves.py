"""Series out of a log, and where a plot puts them."""

import re

import pytest

from trainers import PROBLEMS
from trainers.problems.blocks import Figure
from trainers.reports.figures import MOST_POINTS, draw_curves, draw_figure

HISTORY = [
    {"step": 1, "loss": 1.0, "loss_moods": 1.2},
    {"step": 2, "loss": 0.8, "loss_moods": 1.0, "loss_moods_2": 7.0},
    {"step": 2, "eval_moods_accuracy": 0.5, "eval_moods_macro_f1": 0.4, "eval_moods_loss": 1.1},
    {"step": 2, "train_loss": 0.9},
]


def test_losses_and_metrics_of_a_task_are_separate():
    loss, metrics = draw_curves(HISTORY, PROBLEMS["classification"]("moods"))

    assert loss.series == {
        "training": [[1, 1.2], [2, 1.0]],
        "held out": [[2, 1.1]],
    }
    assert metrics.series == {
        "accuracy": [[2, 0.5]],
        "macro_f1": [[2, 0.4]],
    }


def test_a_task_that_was_not_logged_has_no_plots():
    assert draw_curves(HISTORY, PROBLEMS["paraphrase"]("pairs")) == []


def test_both_losses_of_pre_training_have_their_plots():
    history = [
        {"step": 3, "loss_text": 9.0, "loss_text_mlm": 8.0, "loss_text_nsp": 1.0},
        {"step": 3, "eval_text_mlm_loss": 7.0, "eval_text_nsp_loss": 0.9, "eval_text_loss": 7.9},
        {"step": 3, "eval_text_perplexity": 1096.6, "eval_text_mlm_accuracy": 0.1},
    ]

    mlm, nsp, metrics = draw_curves(history, PROBLEMS["pretraining"]("text"))

    assert list(mlm.series.values()) == [[[3, 8.0]], [[3, 7.0]]]
    assert list(nsp.series.values()) == [[[3, 1.0]], [[3, 0.9]]]
    assert list(metrics.series) == ["mlm_accuracy"]


def test_distances_of_vectors_have_a_separate_plot():
    names = ("loss", "accuracy", "mrr", "alignment", "uniformity")
    history = [{"step": 3, "loss_near": 2.0}, {"step": 3} | {f"eval_near_{n}": 0.5 for n in names}]

    plots = draw_curves(history, PROBLEMS["contrastive"]("near"))

    assert {plot.title: list(plot.series) for plot in plots} == {
        "Loss": ["training", "held out"],
        "Metrics on held-out rows": ["accuracy", "mrr"],
        "Lower is better": ["alignment", "uniformity"],
    }


def test_a_long_series_is_thinned_with_a_note():
    history = [{"step": step, "loss_moods": 1 / step} for step in range(1, 5001)]

    (figure,) = draw_curves(history, PROBLEMS["classification"]("moods"))

    points = figure.series["training"]
    assert len(points) == MOST_POINTS
    assert points[0] == [1, 1.0]
    assert points[-1] == [5000, 1 / 5000]
    assert figure.note == f"training: {MOST_POINTS} of 5,000 points, evenly spread."


@pytest.mark.parametrize(
    ("name", "title", "step"), [("loss", "held-out loss", 3), ("accuracy", "accuracy", 2)]
)
def test_the_best_evaluation_is_ringed(name, title, step):
    values = (0.5, 0.9, 0.2, 0.3)
    history = [{"step": 1, "loss_moods": 0.1}]
    history += [{"step": n, f"eval_moods_{name}": v} for n, v in enumerate(values, start=1)]

    figure = draw_curves(history, PROBLEMS["classification"]("moods"), kept=2, pace=0.5)[-1]

    assert figure.ring == [step, values[step - 1]]
    expected = f"Ringed: the best {title}, {values[step - 1]} at step {step}, epoch {step / 2:g}."
    assert figure.note.endswith(expected)
    assert figure.mark == 2


def draw(**changes):
    """Draw a line; gives its SVG."""
    known = {"x": "optimizer steps", "y": "", "series": {"accuracy": [[1, 0.5], [2, 0.7]]}}
    return draw_figure(Figure("Metrics", **(known | changes)), 3, "Metrics of $a$ <b>")


def test_a_picture_is_part_of_a_page():
    text = draw(ring=[2, 0.7], mark=1.0)

    assert text.startswith(
        '<svg role="img" aria-label="Metrics of $a$ &lt;b&gt;. accuracy: 0.5 at 1'
    )
    assert "xmlns" not in text
    assert "http" not in text
    assert "<style" not in text
    assert "xlink" not in text
    # every color is one of the style sheet, so that a dark page has dark colors
    assert not re.search("#[0-9a-f]{6}", text)
    assert "var(--dev)" in text
    names = re.findall(r' id="([^"]*)"', text)
    assert len(names) == len(set(names))
    assert not set(names) & set(
        re.findall(r' id="([^"]*)"', draw_figure(Figure("", "x", "y", {"a": [[1, 2]]}), 4))
    )
    assert draw(ring=[2, 0.7], mark=1.0) == text


def test_values_that_are_no_numbers_are_left_out():
    nothing = [[1, float("nan")], [2, float("inf")]]

    assert "No finite value" in draw(series={"held out": nothing})
    assert "held out: no finite value" in draw(series={"held out": nothing, "training": [[1, 2]]})


def test_ticks_of_steps_are_whole():
    ticks = re.findall(r">([\d.]+)</text>", draw(series={"accuracy": [[1, 0.1], [2, 0.3]]}))

    assert {"0", "1", "2"} <= set(ticks)
    assert "0.5" not in ticks[:4]


@pytest.mark.parametrize("style", ["lines", "points", "intervals"])
def test_every_style_is_drawn(style):
    points = [[0.2, 0.3, 0.4]] if style != "points" else [[0.2, 0.3]]

    assert draw(x="x", series={"a": points, "b": points}, style=style).startswith("<svg")
