"""Rows of the tasks and of running text, from files, the Hub or built-in samples, and tokens."""

from .catalog import DATASETS
from .corpus import CorpusData
from .encoded_corpus import EncodedCorpus, encode_corpus
from .encoding import encode_rows
from .loading import BadRow, LoadedTask, load_task
from .sources import ChainedTexts, corpus_texts
from .tag_encoding import encode_tagged
from .task import TaskData
from .text_rows import TextRows, make_text_rows
from .vocabulary import train_wordpiece
from .windows import WindowSizes, encode_questions

__all__ = [
    "DATASETS",
    "BadRow",
    "ChainedTexts",
    "CorpusData",
    "EncodedCorpus",
    "LoadedTask",
    "TaskData",
    "TextRows",
    "WindowSizes",
    "corpus_texts",
    "encode_corpus",
    "encode_questions",
    "encode_rows",
    "encode_tagged",
    "load_task",
    "make_text_rows",
    "train_wordpiece",
]
