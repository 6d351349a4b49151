"""Rows of tasks and running text, from files, the Hub or built-in samples, and their tokens."""

from .catalog import DATASETS
from .corpus.corpus_data import CorpusData
from .corpus.rows import TextRows, make_text_rows
from .corpus.sources import ChainedTexts, corpus_texts
from .corpus.tokens import EncodedCorpus, encode_corpus
from .problems import FORMATS, ROW_FORMATS, RowFormat
from .problems.encoding.sequences import encode_rows
from .problems.encoding.tags import encode_tagged
from .problems.encoding.windows import WindowSizes, encode_questions
from .tasks.held_out import MOST_HELD_OUT
from .tasks.invalid_rows import InvalidRow
from .tasks.loading import LoadedTask, load_group, load_task
from .tasks.reading import check_files
from .tasks.repeated_rows import LARGEST_SHARE, count_equal_tokens
from .tasks.task_data import TaskData
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
    "LoadedTask",
    "RowFormat",
    "TaskData",
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
