"""Auto classes build models from configurations as they do for BERT."""

import pytest
import transformers

from modeling_minbert import MinBertConfig

HEADS = ("PreTraining", "MaskedLM", "NextSentencePrediction", "SequenceClassification")
AUTO_CLASSES = ["AutoModel"] + [
    f"AutoModelFor{name}" for name in (*HEADS, "TokenClassification", "QuestionAnswering")
]


@pytest.mark.parametrize("name", AUTO_CLASSES)
def test_from_config_builds_what_it_builds_of_a_bert(tiny_sizes, name):
    auto_class = getattr(transformers, name)
    labels = 2 if name.endswith("QuestionAnswering") else 3  # an answer has a start and an end
    theirs = auto_class.from_config(transformers.BertConfig(**tiny_sizes, num_labels=labels))
    ours = auto_class.from_config(MinBertConfig(**tiny_sizes, num_labels=labels))

    expected = {key: value.shape for key, value in theirs.state_dict().items()}
    assert {key: value.shape for key, value in ours.state_dict().items()} == expected


def test_from_config_builds_the_heads_of_tasks(tiny_sizes, tasks):
    config = MinBertConfig(**tiny_sizes, tasks=tasks)
    model = transformers.AutoModelForSequenceClassification.from_config(config)

    assert sorted(model.heads) == sorted(tasks)
