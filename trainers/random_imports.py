"""Imports of libraries that draw random numbers: Python's generator stays as it was."""

import random

state = random.getstate()

import rich.style  # noqa: E402, F401  it draws the first of the numbers of its styles

random.setstate(state)
