"""The picture of speed and quality."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from trainers.reports.plots.palette import LIGHT, new_figure, style_axes

from .contenders import AGAIN, Contender
from .summary import Line

COLORS = {"minbert": "dev", "sentence-transformers": "train", "onnx": "third", "openvino": "fourth"}
NAMES = {
    "minbert": "minBERT",
    "sentence-transformers": "sentence-transformers",
    "transformers": "Transformers",
    "onnx": "ONNX Runtime",
    "openvino": "OpenVINO",
}
MARKS = {"float32": "o", "bfloat16": "s", "int8": "^"}
FONT = 8
STEPS = 60  # of a line, for the places of labels
GAP = 9  # between a point and its label, in points


class Point(NamedTuple):
    """A contender: relative speed, and quality in percent."""

    name: Contender
    speed: float
    quality: float


class Box(NamedTuple):
    """A rectangle in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: "Box") -> float:
        """Return the area that two boxes share."""
        width = min(self.right, other.right) - max(self.left, other.left)
        height = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(0.0, width) * max(0.0, height)

    def outside(self, frame: "Box") -> float:
        """Return the area outside a frame."""
        return (self.right - self.left) * (self.top - self.bottom) - self.overlap(frame)


def make_points(lines: Iterable[Line]) -> list[Point]:
    """Return the points of the contenders that have a speed and a quality."""
    return [
        Point(Contender.parse(line.name), line.row.ratio.median, line.quality)
        for line in lines
        if line.row.ratio is not None and line.quality is not None and not line.name.endswith(AGAIN)
    ]


def draw(file: Path, points: Sequence[Point]) -> bool:
    """Plot quality against speed; return whether there is anything to plot."""
    if not points:
        return False
    with new_figure(file, 9, 5) as figure:
        plot(figure, points)
    return True


def plot(figure: Any, points: Sequence[Point]) -> None:
    """Plot the points into a figure."""
    axes = figure.add_subplot()
    style_axes(axes, "Speed and quality of embeddings, by precision")
    axes.grid(axis="x", color=LIGHT["line"], linewidth=0.6)
    for peer in _order(points):
        own = _points_of(peer, points)
        axes.plot(*_columns(own), color=_color(peer), linewidth=1, alpha=0.5)
        for point in own:
            axes.plot(
                point.speed, point.quality, MARKS[point.name.precision], markersize=8,
                color=_color(peer), markeredgecolor=LIGHT["page"],
            )  # fmt: skip
    axes.axvline(1, color=LIGHT["quiet"], linewidth=1, zorder=0)
    axes.set_xlabel(
        "sentences per second, as a multiple of sentence-transformers in float32",
        fontsize=FONT, color=LIGHT["quiet"],
    )  # fmt: skip
    axes.set_ylabel("Spearman on STS dev, %", fontsize=FONT, color=LIGHT["quiet"])
    _frame(axes, points)
    _mark_precisions(axes)
    figure.canvas.draw()  # the layout decides the pixels
    _label(axes, points)


def _order(points: Sequence[Point]) -> list[str]:
    """Return the peers, minBERT last, so that its points are on top."""
    return sorted({point.name.peer for point in points}, key=lambda peer: (peer == "minbert", peer))


def _points_of(peer: str, points: Sequence[Point]) -> list[Point]:
    """Return the points of a peer, from float32 to int8."""
    own = [point for point in points if point.name.peer == peer]
    return sorted(own, key=lambda point: list(MARKS).index(point.name.precision))


def _columns(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [point.speed for point in points], [point.quality for point in points]


def _color(peer: str) -> str:
    return LIGHT[COLORS.get(peer, "quiet")]


def _frame(axes: Any, points: Sequence[Point]) -> None:
    """Leave room for labels."""
    qualities = [point.quality for point in points]
    room = 0.25 * max(max(qualities) - min(qualities), 0.2)
    axes.set_ylim(min(qualities) - room, max(qualities) + 2 * room)
    axes.set_xlim(0, 1.2 * max(point.speed for point in points))


def _mark_precisions(axes: Any) -> None:
    """Explain the marks."""
    for precision, mark in MARKS.items():
        axes.plot([], [], mark, color=LIGHT["quiet"], label=precision)
    axes.legend(loc="lower left", fontsize=FONT, frameon=False, labelcolor=LIGHT["ink"])


def _label(axes: Any, points: Sequence[Point]) -> None:
    """Write the name of a peer beside its fastest point, where it hides the least."""
    renderer = axes.figure.canvas.get_renderer()
    frame = Box(*axes.get_window_extent(renderer).extents)
    taken = _marked(axes, points)
    taken.append(Box(*axes.get_legend().get_window_extent(renderer).extents))
    for peer in _order(points)[::-1]:
        text = _write(axes, max(_points_of(peer, points), key=lambda point: point.speed))
        choices = [(_place(text, offset, renderer), offset) for offset in _offsets()]
        box, offset = min(
            choices,
            key=lambda choice: (
                sum(choice[0].overlap(other) for other in taken) + choice[0].outside(frame),
                abs(choice[1][0]) + abs(choice[1][1]),
            ),
        )
        _move(text, offset)
        taken.append(box)


def _marked(axes: Any, points: Sequence[Point]) -> list[Box]:
    """Return the places of the points and, in small steps, of the lines between them."""
    boxes = []
    for peer in _order(points):
        corners = axes.transData.transform(
            [(point.speed, point.quality) for point in _points_of(peer, points)]
        )
        boxes += [Box(x - 7, y - 7, x + 7, y + 7) for x, y in corners]
        for (x, y), (other_x, other_y) in pairwise(corners):
            for step in range(STEPS):
                part = step / STEPS
                place = x + part * (other_x - x), y + part * (other_y - y)
                boxes.append(Box(place[0] - 1, place[1] - 1, place[0] + 1, place[1] + 1))
    return boxes


def _write(axes: Any, point: Point) -> Any:
    return axes.annotate(
        NAMES[point.name.peer],
        (point.speed, point.quality), xytext=(0, 0), textcoords="offset points",
        fontsize=FONT, color=_color(point.name.peer), parse_math=False,
        arrowprops={"arrowstyle": "-", "color": LIGHT["line"], "linewidth": 0.8, "shrinkB": 4},
    )  # fmt: skip


def _offsets() -> list[tuple[int, int]]:
    """Return places of a label around its point, in points: sides first, then rows above."""
    rows = [0, 12, -12, 24, -24, 36, -36, 48, -48, 60, -60, 72, -72]
    return [(side * GAP, row) for row in rows for side in (1, -1)]


def _place(text: Any, offset: tuple[int, int], renderer: Any) -> Box:
    """Return the box of a label at an offset, with a small margin."""
    _move(text, offset)
    left, bottom, right, top = find_box(text, renderer)
    return Box(left - 2, bottom - 1, right + 2, top + 1)


def find_box(text: Any, renderer: Any) -> Box:
    """Return the box of a label without the line that leads to it."""
    from matplotlib.text import Text

    text.update_positions(renderer)
    return Box(*Text.get_window_extent(text, renderer).extents)


def _move(text: Any, offset: tuple[int, int]) -> None:
    text.set_position(offset)
    text.set_ha("left" if offset[0] > 0 else "right")
    text.set_va("center")
    far = abs(offset[1]) > 12
    if text.arrow_patch is not None:
        text.arrow_patch.set_visible(far)
