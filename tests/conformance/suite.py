"""transformers' own model tests, run on every class: ``make conformance``.

The file is not named ``test_*.py``, so that plain ``pytest`` does not collect it: the mixins have
to be fetched first (``fetch.py``).
"""

import math
import unittest

import pytest
import torch
from transformers.models.auto import modeling_auto

from modeling_minbert import (
    MinBertConfig,
    MinBertForMaskedLM,
    MinBertForMultiTask,
    MinBertForNSP,
    MinBertForPreTraining,
    MinBertForQuestionAnswering,
    MinBertForSequenceClassification,
    MinBertForTokenClassification,
    MinBertModel,
)

# The mixins look up here, when they are imported, which labels a class takes.
NAMES = {
    "MODEL_MAPPING_NAMES": MinBertModel,
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES": MinBertForMaskedLM,
    "MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES": MinBertForNSP,
    "MODEL_FOR_PRETRAINING_MAPPING_NAMES": MinBertForPreTraining,
    "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES": MinBertForQuestionAnswering,
    "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES": MinBertForSequenceClassification,
    "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES": MinBertForTokenClassification,
}
for mapping, model_class in NAMES.items():
    getattr(modeling_auto, mapping)[MinBertConfig.model_type] = model_class.__name__

from transformers.testing_utils import torch_device  # noqa: E402
from transformers_tests.test_configuration_common import ConfigTester  # noqa: E402
from transformers_tests.test_modeling_common import (  # noqa: E402
    ModelTesterMixin,
    ids_tensor,
    random_attention_mask,
)

pytestmark = pytest.mark.conformance

LABELS = ["down", "level", "up"]
# What encoders of other types than BERT have; see `modeling_minbert/families.py`.
OFFSET = {"position_offset": 2, "pad_token_id": 1}
WITHOUT_TYPES = {"type_vocab_size": 0}
TYPES = {
    "roberta": {**OFFSET, "type_vocab_size": 1},
    "mpnet": {**OFFSET, **WITHOUT_TYPES, "relative_attention_num_buckets": 32},
    "distilbert": WITHOUT_TYPES,
    "modernbert": {
        **WITHOUT_TYPES,
        "norm_bias": False,
        "layer_bias": False,
        "local_attention": 4,
        "global_attention_every": 2,
        "rope_theta": 1e5,
        "local_rope_theta": 1e4,
    },
}
TASKS = {
    "classification": {"problem_type": "classification", "labels": LABELS},
    "labels": {"problem_type": "multi_label_classification", "labels": LABELS},
    "mlp": {"problem_type": "classification", "labels": LABELS, "head": "mlp"},
    "joint": {"problem_type": "paraphrase", "pair_encoding": "joint"},
    "concat": {
        "problem_type": "paraphrase",
        "pair_encoding": "separate",
        "head": "concat",
        "pooling": "pooler",
    },
    "cosine": {
        "problem_type": "similarity",
        "score_range": [0, 5],
        "pair_encoding": "separate",
        "head": "cosine",
    },
    "numbers": {"problem_type": "regression", "targets": LABELS, "mean": [0, 5, -9]},
    "several": {
        "problem_type": "multi_output_classification",
        "outputs": ["a", "b"],
        "classes": [LABELS, LABELS[:2]],
    },
    "windows": {"problem_type": "classification", "labels": LABELS, "truncation": "windows"},
    "masked_lm": {"problem_type": "masked_lm"},
    "pretraining": {"problem_type": "pretraining"},
}


class ModelTester:
    """Sizes, configuration and inputs of a tiny model, under the names that the mixins read."""

    batch_size = 13
    seq_length = 7
    vocab_size = 99
    hidden_size = 48  # heads of 16, the least that attention kernels take
    num_hidden_layers = 2
    num_attention_heads = 3
    is_training = True

    def __init__(self, tasks=(), encoder_type="bert"):
        self.encoder_type = encoder_type
        self.tasks = {name: TASKS[name] for name in tasks}
        task = next(iter(self.tasks.values()), {})
        sentences = (2,) if task.get("pair_encoding") == "separate" else ()
        self.shape = (self.batch_size, *sentences, self.seq_length)

    def get_config(self):
        return MinBertConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            intermediate_size=37,
            max_position_embeddings=53,
            tasks=self.tasks or None,
            encoder_type=self.encoder_type,
            **TYPES.get(self.encoder_type, {}),
        )

    def prepare_config_and_inputs_for_common(self):
        inputs = {
            "input_ids": ids_tensor(self.shape, self.vocab_size),
            "token_type_ids": ids_tensor(self.shape, 2),
            "attention_mask": random_attention_mask((math.prod(self.shape[:-1]), self.seq_length)),
        }
        inputs["attention_mask"] = inputs["attention_mask"].view(self.shape)
        config = self.get_config()
        if config.position_offset:  # a padding has no position, which its embedding does not show
            padding = inputs["input_ids"] == config.pad_token_id
            inputs["input_ids"] = inputs["input_ids"].masked_fill(padding, 2)
        return config, inputs


def zeros(*shape, dtype=torch.long):
    return torch.zeros(shape, dtype=dtype, device=torch_device)


class TestMinBert(ModelTesterMixin, unittest.TestCase):
    """The encoder and BERT's own heads."""

    all_model_classes = tuple(NAMES.values())
    encoder_type = "bert"

    def setUp(self):
        self.model_tester = ModelTester(encoder_type=self.encoder_type)

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels)
        if return_labels and model_class is MinBertForPreTraining:
            inputs["labels"] = zeros(self.model_tester.batch_size, self.model_tester.seq_length)
            inputs["next_sentence_label"] = zeros(self.model_tester.batch_size)
        return inputs

    def test_config(self):
        ConfigTester(self, config_class=MinBertConfig, hidden_size=36).run_common_tests()


class TestRoberta(TestMinBert):
    """XLM-RoBERTa and CamemBERT have the same encoder."""

    encoder_type = "roberta"


class TestMPNet(TestMinBert):
    encoder_type = "mpnet"


class TestDistilBert(TestMinBert):
    encoder_type = "distilbert"


class TestModernBert(TestMinBert):
    encoder_type = "modernbert"


class MultiTask(ModelTesterMixin):
    """The multi-task model; ``forward`` computes the first of ``tasks``."""

    all_model_classes = (MinBertForMultiTask,)
    tasks = ()

    def setUp(self):
        self.model_tester = ModelTester(self.tasks)

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels)
        if return_labels:
            rows, length = self.model_tester.batch_size, self.model_tester.seq_length
            kind = TASKS[self.tasks[0]]["problem_type"]
            of_words = kind in ("masked_lm", "pretraining")
            of_classes = kind in ("classification", "multi_output_classification")
            dtype = torch.long if of_words or of_classes else torch.float
            beside = [length] * of_words + [len(LABELS)] * (self.tasks[0] in ("labels", "numbers"))
            beside += [2] * (self.tasks[0] == "several")
            inputs["labels"] = zeros(rows, *beside, dtype=dtype)
            if kind == "pretraining":
                inputs["next_sentence_label"] = zeros(rows)
        return inputs


class TestSeveralTasks(MultiTask, unittest.TestCase):
    tasks = tuple(TASKS)
    test_all_params_have_gradient = False  # a step belongs to one task, the other heads rest


# Mean pooling leaves BERT's pooler alone, and masked words do not read it.
WITHOUT_POOLER = ("cosine", "masked_lm")
for task in TASKS:
    settings = {"tasks": (task,), "test_all_params_have_gradient": task not in WITHOUT_POOLER}
    globals()[f"Test_{task}"] = type(f"Test_{task}", (MultiTask, unittest.TestCase), settings)
