"""From rows to batches: rows as flat arrays, the task and rows of each step, collators."""
