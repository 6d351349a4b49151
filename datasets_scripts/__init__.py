"""Rows of tasks and running text, from files, the Hub or built-in samples, and their tokens."""

from .catalog import DATASETS
from .corpus.corpus_data import CorpusData
from .corpus.rows import TextRows, make_text_rows
from .corpus.sources import ChainedTexts, corpus_texts
from .corpus.tokens import EncodedCorpus, encode_corpus
from .drawing import LARGEST_SHARE, MOST_HELD_OUT, count_equal_tokens
from .encoding import WindowSizes, encode_questions, encode_rows, encode_tagged
from .formats import FORMATS, ROW_FORMATS
from .loading import load_group, load_task
from .reading import InvalidRow, TaskRows, check_files
from .row_format import RowFormat
from .task_data import TaskData
from .vocabulary import train_wordpiece

__all__ = [
    "DATASETS",
    "FORMATS",
    "LARGEST_SHARE",
    "MOST_HELD_OUT",
    "ROW_FORMATS",
    "ChainedTexts",
    "CorpusData",
    "EncodedCorpus",
    "InvalidRow",
    "RowFormat",
    "TaskData",
    "TaskRows",
    "TextRows",
    "WindowSizes",
    "check_files",
    "corpus_texts",
    "count_equal_tokens",
    "encode_corpus",
    "encode_questions",
    "encode_rows",
    "encode_tagged",
    "load_group",
    "load_task",
    "make_text_rows",
    "train_wordpiece",
]
