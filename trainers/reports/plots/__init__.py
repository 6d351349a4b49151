"""Curves, colors and positions of the plots of a run."""
