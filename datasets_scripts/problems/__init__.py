"""The formats of rows, one module for each problem type, and the encoding they share."""

from .classification import ClassificationFormat
from .contrastive import ContrastiveFormat
from .multi_label_classification import MultiLabelFormat
from .multiple_choice import ChoiceFormat
from .ordinal import OrdinalFormat
from .paraphrase import ParaphraseFormat
from .question_answering import QuestionFormat
from .regression import RegressionFormat
from .row_format import RowFormat
from .similarity import SimilarityFormat
from .token_classification import TagFormat

# None: the rows are made from a corpus, by `make_text_rows`.
FORMATS: dict[str, type[RowFormat] | None] = {
    "classification": ClassificationFormat,
    "multi_label_classification": MultiLabelFormat,
    "ordinal": OrdinalFormat,
    "paraphrase": ParaphraseFormat,
    "similarity": SimilarityFormat,
    "regression": RegressionFormat,
    "multiple_choice": ChoiceFormat,
    "contrastive": ContrastiveFormat,
    "token_classification": TagFormat,
    "question_answering": QuestionFormat,
    "masked_lm": None,
    "next_sentence": None,
    "pretraining": None,
}
# Those whose rows are read one by one.
ROW_FORMATS: dict[str, type[RowFormat]] = {
    name: kind for name, kind in FORMATS.items() if kind is not None
}

__all__ = ["FORMATS", "ROW_FORMATS", "RowFormat"]
