"""The card of a pushed model; the Hub itself is in ``tests/test_hub.py``."""

import pytest
from huggingface_hub import ModelCard

import modeling_minbert
from modeling_minbert import MinBertConfig
from modeling_minbert.modeling_minbert import AUTO_MODELS
from modeling_minbert.sharing import HUB_TASKS, find_card, make_card


def test_a_push_without_a_network_has_a_clear_error(build_multitask, tasks):
    with pytest.raises(OSError, match="HF_HUB_OFFLINE"):
        build_multitask(tasks).push_to_hub("user/model")


@pytest.mark.parametrize("kind", AUTO_MODELS, ids=lambda kind: kind.__name__)
def test_the_card_of_every_class_loads_it_by_its_auto_class(tiny_sizes, kind):
    model = kind(MinBertConfig(**tiny_sizes))

    card = ModelCard(make_card(model, "user/model"))

    assert card.data.pipeline_tag == HUB_TASKS[kind._auto_class]
    assert f'{kind._auto_class}.from_pretrained("user/model", trust' in card.text
    assert f"{model.num_parameters():,} parameters" in card.text


def test_the_card_of_a_multi_task_model_shows_a_row_of_every_task(build_multitask, tasks):
    model = build_multitask(tasks | {"text": {"problem_type": "masked_lm"}})

    text = make_card(model, "user/model")

    assert "model.predict(\"tone\", ['A sentence.'])" in text
    assert "model.predict(\"near\", [('A first.', 'A second.')])" in text
    assert 'predict("text"' not in text


def test_the_card_names_the_model_of_the_hub_that_it_came_from(tiny_sizes, tmp_path):
    model = modeling_minbert.MinBertModel(MinBertConfig(**tiny_sizes))

    for start, base in (("owner/bert", "owner/bert"), (str(tmp_path), None), ("", None)):
        model.name_or_path = start
        assert ModelCard(make_card(model, "user/model")).data.base_model == base


def test_a_question_is_asked_with_its_text(build_multitask):
    model = build_multitask({"facts": {"problem_type": "question_answering"}})

    assert "model.predict(\"facts\", [('A question?', 'A text.')])" in make_card(model, "a/b")


CARD = """---
license: mit
model-index:
- name: small
  results:
  - task: {type: text-classification}
    dataset: {name: own, type: own}
    metrics: [{type: accuracy, value: 0.9}]
---
# small
path = "runs/\\"a"
model = Auto.from_pretrained(path)
"""


@pytest.mark.parametrize("change", ["trained", "quantized", "reduced", None])
def test_a_card_is_not_taken_for_other_weights(build_multitask, tasks, tmp_path, change, caplog):
    build_multitask(tasks).save_pretrained(tmp_path)
    (tmp_path / "README.md").write_text(CARD)
    model = modeling_minbert.MinBertForMultiTask.from_pretrained(tmp_path)
    if change == "trained":
        model.heads.tone.out.bias.data[0] += 1
    elif change == "quantized":
        model.quantize()
    elif change == "reduced":
        model.half()

    card = find_card(model, "user/model")

    is_taken = change in ("reduced", None)
    assert (card is not None) == is_taken
    assert not is_taken or 'path = "user/model"\n' in card
    assert ("describes other weights" in caplog.text) == (not is_taken)
