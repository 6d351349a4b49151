"""The picture of the benchmark, from its rows or from the tables of a report."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from benchmarks import plot
from benchmarks.records import Race
from benchmarks.summary import Row, Spread
from benchmarks.targets import TARGETS

REPORT = Path(__file__).parents[1] / "benchmarks" / "RESULTS.md"
RACE = Race("sst", "minilm", ("minbert", "trainer"))
TEXT = """## Speed and memory compared with the peers

| workload | model | peer | speed, minBERT / peer | floor / target / stretch | level |
| --- | --- | --- | --- | --- | --- |
| sst_grouped | minilm | trainer-grouped | 1.30 [1.06, 1.43] | 1.05 / 1.2 / 1.35 | target |
| encode | minilm | sentence-transformers | 1.39 [1.38, 1.40] |  |  |
| mlm128 | base | trainer | void (no gate) |  |  |

## Ratios under other limits

| sst | minilm | trainer | 9.99 [9.98, 9.99] | 2 |

## Noise

| sst | minilm | 1.07 [0.96, 1.24] | 6 |
"""


def test_a_ratio_is_described_in_words():
    rows = [
        Row(RACE, "minbert", "trainer", None, Spread(2.5, 2.0, 3.0)),
        Row(RACE, "minbert+compile", "trainer", None, Spread(2.6, 2.0, 3.0)),
        Row(RACE, "minbert", "minbert-again", None, Spread(1.0, 0.9, 1.1)),
        Row(RACE, "minbert", "minbert", None, Spread(1.0, 1.0, 1.0)),
        Row(RACE, "minbert", "bare", "no gate"),
    ]

    bars = plot.make_bars(rows, TARGETS)

    assert [bar.label for bar in bars] == [
        "SST fine-tuning, beside Transformers' Trainer",
        "SST fine-tuning, beside Transformers' Trainer (by minbert+compile)",
        "SST fine-tuning, beside minBERT itself (noise)",
    ]
    assert [bar.is_control for bar in bars] == [False, False, True]
    assert bars[0].target == TARGETS["sst", "minilm", "trainer"]


def test_tables_of_a_report_are_read_back():
    grouped, encode, noise = plot.read_bars(TEXT)

    assert grouped.label == "SST fine-tuning, grouped by length, beside Transformers' Trainer"
    assert grouped.ratio == (1.30, 1.06, 1.43)
    assert grouped.target == TARGETS["sst_grouped", "minilm", "trainer"]
    assert encode.label == "embedding sentences, beside sentence-transformers"
    assert (noise.ratio, noise.is_control) == ((1.07, 0.96, 1.24), True)


def test_the_published_tables_are_all_in_the_picture():
    bars = plot.read_bars(REPORT.read_text(encoding="utf-8"))

    assert len([bar for bar in bars if not bar.is_control]) == 9
    assert len([bar for bar in bars if bar.is_control]) == 2
    assert all(bar.target for bar in bars if not bar.is_control)


def test_bars_are_sorted_with_the_controls_below(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(plot, "_draw_bar", lambda _, place, bar: drawn.append((place, bar)))

    assert plot.draw(tmp_path / "plot.png", plot.read_bars(TEXT))

    assert [bar.ratio.median for _, bar in drawn] == [1.07, 1.30, 1.39]
    assert [place for place, _ in drawn] == [0, 1, 2]


@pytest.mark.parametrize("target", [None, TARGETS["sst", "minilm", "trainer"]])
def test_a_bar_has_its_number_and_its_target(target):
    axes = Figure().subplots()

    plot._draw_bar(axes, 0, plot.Bar("x", Spread(2.5, 2.0, 3.0), target))

    assert [text.get_text() for text in axes.texts] == ["2.5x"]
    assert [bar.get_width() for bar in axes.patches] == [2.5]
    # the spread, the floor and the target
    assert len(axes.collections) == (1 if target is None else 3)


def test_the_short_picture_has_neither_targets_nor_controls(tmp_path, monkeypatch):
    (tmp_path / "RESULTS.md").write_text(TEXT)
    drawn = {}
    monkeypatch.setattr(plot, "draw", lambda file, bars: drawn.setdefault(file.name, bars))

    plot.main([str(tmp_path / "RESULTS.md")])
    plot.main([str(tmp_path / "RESULTS.md"), str(tmp_path / "speed.png")])

    assert len(drawn["RESULTS.png"]) == 3
    assert [bar.target for bar in drawn["speed.png"]] == [None, None]


def test_a_report_without_ratios_is_named(tmp_path):
    (tmp_path / "RESULTS.md").write_text("# Nothing\n")

    with pytest.raises(SystemExit, match=r"RESULTS.md has no table with ratios; expected"):
        plot.main([str(tmp_path / "RESULTS.md")])
