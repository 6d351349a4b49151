"""Series out of a log, and where a plot puts them."""

import re

import pytest

from trainers import PROBLEMS, Figure, draw_curves, draw_figure

HISTORY = [
    {"step": 1, "loss": 1.0, "loss_moods": 1.2},
    {"step": 2, "loss": 0.8, "loss_moods": 1.0, "loss_moods_2": 7.0},
    {"step": 2, "eval_moods_accuracy": 0.5, "eval_moods_macro_f1": 0.4, "eval_moods_loss": 1.1},
    {"step": 2, "train_loss": 0.9},
    {"step": 3, "loss_text": 9.0, "loss_text_mlm": 8.0, "loss_text_nsp": 1.0},
    {"step": 3, "eval_text_mlm_loss": 7.0, "eval_text_nsp_loss": 0.9, "eval_text_loss": 7.9},
    {"step": 3, "eval_text_perplexity": 1096.6, "eval_text_mlm_accuracy": 0.1},
    {"step": 3, "loss_near": 2.0, "eval_near_mrr": 0.5, "eval_near_uniformity": -1.0},
]


@pytest.mark.parametrize(
    ("kind", "task", "plots"),
    [
        (
            "classification",
            "moods",
            {
                "Loss": {"training": [[1, 1.2], [2, 1.0]], "held out": [[2, 1.1]]},
                "Metrics on held-out rows": {"accuracy": [[2, 0.5]], "macro_f1": [[2, 0.4]]},
            },
        ),
        (
            "pretraining",
            "text",
            {
                "MLM loss": {"training": [[3, 8.0]], "held out": [[3, 7.0]]},
                "NSP loss": {"training": [[3, 1.0]], "held out": [[3, 0.9]]},
                "Metrics on held-out rows": {"mlm_accuracy": [[3, 0.1]]},
            },
        ),
        (
            "contrastive",
            "near",
            {
                "Loss": {"training": [[3, 2.0]]},
                "Metrics on held-out rows": {"mrr": [[3, 0.5]]},
                "Lower is better": {"uniformity": [[3, -1.0]]},
            },
        ),
        ("paraphrase", "never logged", {}),
    ],
)
def test_losses_and_metrics_of_a_task_have_their_plots(kind, task, plots):
    found = draw_curves(HISTORY, PROBLEMS[kind](task), kept=2)

    assert {figure.title: figure.series for figure in found} == plots
    assert all(figure.mark == 2 for figure in found)


def test_a_long_series_is_thinned_with_a_note():
    history = [{"step": step, "loss_moods": 1 / step} for step in range(1, 5001)]

    (figure,) = draw_curves(history, PROBLEMS["classification"]("moods"))

    points = figure.series["training"]
    assert (points[0], points[-1]) == ([1, 1.0], [5000, 1 / 5000])
    assert figure.note == "training: 200 of 5,000 points, evenly spread."


def draw(**changes):
    """Draw a line; gives its SVG."""
    known = {"x": "optimizer steps", "y": "", "series": {"accuracy": [[1, 0.5], [2, 0.7]]}}
    return draw_figure(Figure("Metrics", **(known | changes)), 3, "Metrics of $a$ <b>")


def test_a_picture_is_part_of_a_page():
    text = draw(mark=1.0)

    assert text.startswith(
        '<svg role="img" aria-label="Metrics of $a$ &lt;b&gt;: accuracy" viewBox='
    )
    assert not re.search("xmlns|http|<style|xlink", text)
    # every color is one of the style sheet, so that a dark page has dark colors
    assert not re.search("#[0-9a-f]{6}", text)
    assert "var(--dev)" in text
    names = re.findall(r' id="([^"]*)"', text)
    assert len(names) == len(set(names))
    other = draw_figure(Figure("", "x", "y", {"a": [[1, 2]]}), 4)
    assert not set(names) & set(re.findall(r' id="([^"]*)"', other))
    assert draw(mark=1.0) == text
    ticks = re.findall(r">([\d.]+)</text>", text)  # of steps, which are whole
    assert {"0", "1", "2"} <= set(ticks)
    assert "0.5" not in ticks[:4]


def test_values_that_are_no_numbers_are_left_out():
    nothing = [[1, float("nan")], [2, float("inf")]]

    assert "No finite value" in draw(series={"held out": nothing})
    assert draw(series={"held out": nothing, "training": [[1, 2]]}).startswith("<svg")


@pytest.mark.parametrize("style", ["lines", "points"])
def test_every_style_is_drawn(style):
    points = [[0.2, 0.3, 0.4]] if style != "points" else [[0.2, 0.3]]

    assert draw(x="x", series={"a": points, "b": points}, style=style).startswith("<svg")
