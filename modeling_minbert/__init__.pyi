from .calibration import (
    best_threshold as best_threshold,
    choose_threshold as choose_threshold,
    find_temperature as find_temperature,
)
from .configuration_minbert import MinBertConfig as MinBertConfig
from .cpu import bfloat16_is_fast as bfloat16_is_fast, choose_precision as choose_precision
from .distillation import align_outputs as align_outputs, symmetric_kl as symmetric_kl
from .heads import (
    MinBertEmbedding as MinBertEmbedding,
    MinBertTask as MinBertTask,
    Pretrained as Pretrained,
)
from .int8 import MinBertInt8Config as MinBertInt8Config
from .losses import LOSSES as LOSSES
from .modeling_minbert import (
    AUTO_MODELS as AUTO_MODELS,
    MinBertForMaskedLM as MinBertForMaskedLM,
    MinBertForNSP as MinBertForNSP,
    MinBertForPreTraining as MinBertForPreTraining,
    MinBertForQuestionAnswering as MinBertForQuestionAnswering,
    MinBertForSequenceClassification as MinBertForSequenceClassification,
    MinBertForTokenClassification as MinBertForTokenClassification,
    MinBertModel as MinBertModel,
    MinBertPreTrainedModel as MinBertPreTrainedModel,
)
from .multitask import MinBertForMultiTask as MinBertForMultiTask
from .names import suggest as suggest, unknown as unknown
from .onnx_export import export_onnx as export_onnx
from .packing import MinBertSequences as MinBertSequences
from .pieces import (
    cut_windows as cut_windows,
    cut_word_windows as cut_word_windows,
    find_layout as find_layout,
    find_space as find_space,
    share_tokens as share_tokens,
    split_documents as split_documents,
    split_questions as split_questions,
    tokenize_words as tokenize_words,
)
from .ranking import cosent as cosent, multiple_negatives_ranking as multiple_negatives_ranking
from .spans import find_entities as find_entities, split_words as split_words
from .tasks import TASKS as TASKS, parse_task as parse_task
from .texts import (
    Encoded as Encoded,
    Encoding as Encoding,
    own_tokenizer as own_tokenizer,
    tokenize as tokenize,
)

__version__: str

def register() -> None: ...
