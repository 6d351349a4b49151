"""Colors that everyone can read and tell apart."""

from itertools import combinations

import numpy as np
import pytest

from trainers.reports.figures import DARK, LIGHT, SERIES

# Machado, Oliveira and Fernandes (2009): what a reader without one kind of cone sees.
SIGHTS = {
    "all": np.eye(3),
    "no long": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no medium": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no short": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def to_linear(color):
    values = np.array([int(color[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def to_lab(linear):
    """Convert to CIELAB, where a distance of 2 can just be seen."""
    parts = XYZ @ np.clip(linear, 0, 1) / XYZ.sum(axis=1)
    x, y, z = np.where(parts > 0.008856, np.cbrt(parts), 7.787 * parts + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(first, second):
    """Compute the contrast of WCAG 2.2."""
    low, high = sorted(float(XYZ[1] @ to_linear(color)) for color in (first, second))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("behind", ["page", "panel"])
def test_every_color_can_be_read(colors, behind):
    for name in ("ink", "quiet", "link", *SERIES):
        assert contrast(colors[name], colors[behind]) >= 4.5, name


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SIGHTS)
def test_everyone_can_tell_the_series_apart(colors, sight):
    seen = [to_lab(np.array(SIGHTS[sight]) @ to_linear(colors[name])) for name in SERIES]

    assert min(np.linalg.norm(a - b) for a, b in combinations(seen, 2)) > 10


def test_both_pages_have_the_same_colors():
    assert LIGHT.keys() == DARK.keys()
