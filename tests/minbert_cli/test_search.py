"""Grids and random draws."""

import pytest
from scipy import stats

from minbert_cli.experiments.search.points import Search


def test_a_grid_has_every_combination_once_and_the_last_field_varies_fastest():
    points = Search(fields={"a": [1, 2], "tasks.sts.loss": {"choice": ["mse", None]}}).points()

    assert points == [
        {"a": 1, "tasks.sts.loss": "mse"},
        {"a": 1, "tasks.sts.loss": None},
        {"a": 2, "tasks.sts.loss": "mse"},
        {"a": 2, "tasks.sts.loss": None},
    ]


def test_extremes_have_every_choice_and_both_ends():
    fields = {"a": [1, 2, 3], "b": {"uniform": [0, 9]}}

    points = Search(fields=fields, method="tpe", trials=1).extremes()

    assert points == [{"a": 1, "b": 0}, {"a": 2, "b": 9}, {"a": 3, "b": 0}]


def draw(distribution, draws=400, seed=0):
    return [point["x"] for point in draw_all({"x": distribution}, draws, seed)]


def draw_all(fields, draws, seed=0):
    return Search(method="random", trials=draws, seed=seed, fields=fields).points()


# Oracle: the Kolmogorov-Smirnov test of scipy against its own distributions.
@pytest.mark.parametrize(
    ("distribution", "expected"),
    [
        ({"uniform": [-1, 3]}, stats.uniform(-1, 4)),
        ({"loguniform": [1e-5, 1e-2]}, stats.loguniform(1e-5, 1e-2)),
    ],
)
def test_draws_follow_their_distribution(distribution, expected):
    assert stats.kstest(draw(distribution), expected.cdf).pvalue > 0.01


def test_choices_are_equally_likely():
    fields = {"x": ["a", "b", "c"], "y": {"uniform": [0, 1]}}

    drawn = [point["x"] for point in draw_all(fields, 400)]

    assert stats.chisquare([drawn.count(value) for value in "abc"]).pvalue > 0.01


def test_fields_are_drawn_independently():
    fields = {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}}
    points = draw_all(fields, 300)

    found = stats.spearmanr([p["x"] for p in points], [p["y"] for p in points])

    assert found.pvalue > 0.01


def test_draws_depend_on_the_seed_and_not_on_more_draws_or_fields():
    wide = {"uniform": [0, 1]}

    assert draw(wide, 5) == draw(wide, 5) == draw(wide, 9)[:5]
    assert draw(wide, 5) != draw(wide, 5, seed=1)
    both = draw_all({"y": wide, "x": wide}, 5)
    assert [point["x"] for point in both] == draw(wide, 5)


def test_a_draw_has_few_digits_and_stays_within_its_ends():
    values = [draw({"loguniform": [1.23456e-5, 1.23457e-5]}, 1, seed)[0] for seed in range(9)]

    assert all(1.23456e-5 <= value <= 1.23457e-5 for value in values)
    assert all(value == float(f"{value:.4g}") for value in draw({"uniform": [0, 1]}, 20))


def test_points_differ():
    values = draw({"choice": [1, 2, 3]}, draws=3)

    assert sorted(values) == [1, 2, 3]
    with pytest.raises(ValueError, match="trials=4, but only 3 of them can differ"):
        draw({"choice": [1, 2, 3]}, draws=4)


RANGE = {"fields": {"x": {"uniform": [0, 1]}}}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"fields": {}}, "fields is empty"),
        ({"fields": {"a": []}}, r"fields: a=\[\]; expected a list of values"),
        ({"fields": {"a": 3}}, "fields: a=3; expected a list"),
        ({"fields": {"a": [1, 2, 1]}}, "fields: a has 1 twice"),
        ({"fields": {"a": [1, 2]}, "trials": 3}, "trials=3, but a grid tries all combinations"),
        ({"fields": {str(n): [1, 2] for n in range(14)}}, "grid has 16,384 points; expected at"),
        (RANGE, "is a range, but a grid needs lists of values; use method: random or tpe"),
        ({"method": "random", **RANGE}, "trials=None; expected an integer from 1 to 10,000"),
        ({"method": "tpe", "trials": 0, **RANGE}, "trials=0; expected an integer from 1"),
        ({"fields": {"x": {"normal": [0, 1]}}}, "'normal'.*; expected a list of values, {uniform"),
        ({"fields": {"x": {"choice": []}}}, r"x=\[\]; expected a list"),
        ({"fields": {"x": {"uniform": [1, 0]}}}, "the lower one first"),
        ({"fields": {"x": {"uniform": [0]}}}, "two numbers, the lower"),
        ({"fields": {"x": {"uniform": ["a", "b"]}}}, "two numbers"),
        ({"fields": {"x": {"loguniform": [0, 1]}}}, "two numbers above 0"),
    ],
)
def test_an_invalid_search_is_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        Search(**keys)
