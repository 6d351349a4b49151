from .catalog import DATASETS as DATASETS
from .corpus import (
    CorpusData as CorpusData,
    EncodedCorpus as EncodedCorpus,
    TrainingTexts as TrainingTexts,
    encode_corpus as encode_corpus,
)
from .loading import (
    MOST_HELD_OUT as MOST_HELD_OUT,
    InvalidRow as InvalidRow,
    TaskRows as TaskRows,
    check_files as check_files,
    choose_places as choose_places,
    hold_out as hold_out,
    load_task as load_task,
    load_tasks as load_tasks,
)
from .questions import encode_questions as encode_questions
from .row_format import (
    Encoding as Encoding,
    RowFormat as RowFormat,
    encode_rows as encode_rows,
    load_format as load_format,
)
from .tagging import encode_tagged as encode_tagged
from .task_data import ROW_KINDS as ROW_KINDS, TaskData as TaskData
from .text_rows import (
    TextRows as TextRows,
    pack_sentences as pack_sentences,
    plan_pairs as plan_pairs,
)
from .vocabulary import train_wordpiece as train_wordpiece
