"""Rows of the tasks, from files, the Hub or the built-in sample, and their tokens."""

from .catalog import DATASETS
from .encoding import encode_rows, train_wordpiece
from .loading import BadRow, LoadedTask, load_task
from .task import TaskData

__all__ = [
    "DATASETS",
    "BadRow",
    "LoadedTask",
    "TaskData",
    "encode_rows",
    "load_task",
    "train_wordpiece",
]
