"""Colors of every page and picture, and the look of the pictures.

The four colors of series have the hues of Okabe and Ito (2008, "Color Universal Design"), which
color-blind readers can tell apart: as published on a dark page, and darker on a white one, where
the published ones are too pale to read. Dashes and marks differ too, so color is never alone.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from trainers.files import replaced_when_done

# By the name of the variable in the style sheet: ``dev`` is held out, ``train`` is training.
LIGHT = {
    "page": "#ffffff",
    "panel": "#f5f6f8",
    "ink": "#1b1d21",
    "quiet": "#565b63",
    "line": "#c9cdd3",
    "dev": "#0067a5",
    "train": "#b84a00",
    "third": "#00805d",
    "fourth": "#a8487f",
    "link": "#0059a8",
}
DARK = {
    "page": "#15171b",
    "panel": "#1f2228",
    "ink": "#e8eaed",
    "quiet": "#b2b8c1",
    "line": "#454b55",
    "dev": "#56b4e9",
    "train": "#e69f00",
    "third": "#009e73",
    "fourth": "#cc79a7",
    "link": "#8cc8ff",
}
SERIES = ("dev", "train", "third", "fourth")


@contextmanager
def new_figure(path: str | os.PathLike[str], width: float, height: float) -> Iterator[Any]:
    """Give an empty matplotlib figure of this size in inches, and write it as PNG at the end."""
    # a run that only trains saves the memory of this import
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor=LIGHT["page"])
    FigureCanvasAgg(figure)
    yield figure
    with replaced_when_done(path) as temporary:
        figure.savefig(temporary, dpi=150)


def style_axes(axes: Any, title: str = "", *, grid: str = "y") -> None:
    """Draw thin lines across one axis only, without a frame; a dollar begins no formula."""
    axes.set_title(title, loc="left", fontsize=10, color=LIGHT["ink"], parse_math=False)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(LIGHT["quiet"])
    axes.grid(axis=grid, color=LIGHT["line"], linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8, labelcolor=LIGHT["quiet"], color=LIGHT["quiet"], length=3)
    axes.tick_params(axis="y", length=0)
