"""Grids and random draws."""

import pytest
from scipy import stats

from minbert_cli.experiments.search import RandomSearch, grid_points


def test_a_grid_has_every_combination_once_and_the_last_field_varies_fastest():
    points = grid_points("row", {"a": [1, 2], "tasks.sts.loss": ["mse", None]})

    assert points == [
        {"a": 1, "tasks.sts.loss": "mse"},
        {"a": 1, "tasks.sts.loss": None},
        {"a": 2, "tasks.sts.loss": "mse"},
        {"a": 2, "tasks.sts.loss": None},
    ]


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({}, "row: grid is empty"),
        ({"a": []}, r"row: grid: a=\[\]; expected a list of values"),
        ({"a": 3}, "row: grid: a=3; expected a list"),
        ({"a": [1, 2, 1]}, "row: grid: a has 1 twice"),
    ],
)
def test_a_grid_without_values_is_refused(grid, message):
    with pytest.raises(ValueError, match=message):
        grid_points("row", grid)


def draw(distribution, draws=400, seed=0):
    search = RandomSearch(draws=draws, seed=seed, fields={"x": distribution})
    return [point["x"] for point in search.points("row")]


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
    search = RandomSearch(
        draws=400, fields={"x": {"choice": ["a", "b", "c"]}, "y": {"uniform": [0, 1]}}
    )

    drawn = [point["x"] for point in search.points("row")]

    assert stats.chisquare([drawn.count(value) for value in "abc"]).pvalue > 0.01


def test_fields_are_drawn_independently():
    fields = {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}}
    points = RandomSearch(draws=300, fields=fields).points("row")

    found = stats.spearmanr([p["x"] for p in points], [p["y"] for p in points])

    assert found.pvalue > 0.01


def test_draws_depend_on_the_seed_and_not_on_more_draws_or_fields():
    wide = {"uniform": [0, 1]}

    assert draw(wide, 5) == draw(wide, 5) == draw(wide, 9)[:5]
    assert draw(wide, 5) != draw(wide, 5, seed=1)
    both = RandomSearch(draws=5, fields={"y": wide, "x": wide}).points("row")
    assert [point["x"] for point in both] == draw(wide, 5)


def test_a_draw_has_few_digits_and_stays_within_its_ends():
    values = [draw({"loguniform": [1.23456e-5, 1.23457e-5]}, 1, seed)[0] for seed in range(9)]

    assert all(1.23456e-5 <= value <= 1.23457e-5 for value in values)
    assert all(value == float(f"{value:.4g}") for value in draw({"uniform": [0, 1]}, 20))


def test_points_differ():
    values = draw({"choice": [1, 2, 3]}, draws=3)

    assert sorted(values) == [1, 2, 3]
    with pytest.raises(ValueError, match="draws=4, but only 3 distinct points were found"):
        draw({"choice": [1, 2, 3]}, draws=4)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"fields": {"x": {"uniform": [0, 1]}}}, "draws=0; expected an integer from 1 to 10,000"),
        ({"draws": 2}, "fields is empty"),
        ({"draws": 2, "fields": {"x": [0, 1]}}, r"x=\[0, 1\]; expected {choice:"),
        ({"draws": 2, "fields": {"x": {"normal": [0, 1]}}}, "'normal'.*; expected {choice:"),
        ({"draws": 2, "fields": {"x": {"choice": []}}}, r"choice=\[\]; expected a list"),
        ({"draws": 2, "fields": {"x": {"uniform": [1, 0]}}}, "the lower one first"),
        ({"draws": 2, "fields": {"x": {"uniform": [0]}}}, "two numbers, the lower"),
        ({"draws": 2, "fields": {"x": {"uniform": ["a", "b"]}}}, "two numbers"),
        ({"draws": 2, "fields": {"x": {"loguniform": [0, 1]}}}, "two numbers above 0"),
    ],
)
def test_an_invalid_search_is_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        RandomSearch(**keys)
