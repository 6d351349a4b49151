"""Checks before training, and the parts that a trainer makes of its tasks."""
