from .catalog import DATASETS as DATASETS
from .corpus.corpus_data import CorpusData as CorpusData
from .corpus.rows import TextRows as TextRows
from .corpus.sources import TrainingTexts as TrainingTexts
from .corpus.tokens import EncodedCorpus as EncodedCorpus, encode_corpus as encode_corpus
from .drawing import MOST_HELD_OUT as MOST_HELD_OUT
from .encoding import (
    Encoding as Encoding,
    encode_questions as encode_questions,
    encode_rows as encode_rows,
    encode_tagged as encode_tagged,
)
from .formats import FORMATS as FORMATS, ROW_FORMATS as ROW_FORMATS
from .loading import (
    InvalidRow as InvalidRow,
    TaskRows as TaskRows,
    check_files as check_files,
    load_task as load_task,
)
from .row_format import RowFormat as RowFormat
from .task_data import TaskData as TaskData
from .vocabulary import train_wordpiece as train_wordpiece
