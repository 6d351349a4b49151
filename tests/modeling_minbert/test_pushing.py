"""The card of a pushed model; the Hub itself is in ``tests/test_hub.py``."""

import pytest
from huggingface_hub import ModelCard

import modeling_minbert
from modeling_minbert import MinBertConfig
from modeling_minbert.modeling_minbert import AUTO_MODELS
from modeling_minbert.sharing import HUB_TASKS, _find_card, _point_to, make_card


def test_a_push_without_a_network_has_a_clear_error(build_multitask, tasks):
    with pytest.raises(OSError, match=r"push_to_hub\('user/model'\): .*; unset HF_HUB_OFFLINE; "):
        build_multitask(tasks).push_to_hub("user/model")


def test_an_unknown_key_of_the_card_is_refused(build_multitask, tasks):
    with pytest.raises(ValueError, match="card: unknown key 'licence'; did you mean 'license'"):
        build_multitask(tasks).push_to_hub("user/model", card={"licence": "mit"})


@pytest.mark.parametrize("kind", AUTO_MODELS, ids=lambda kind: kind.__name__)
def test_the_card_of_every_class_loads_it_by_its_auto_class(tiny_sizes, kind):
    model = kind(MinBertConfig(**tiny_sizes))

    card = ModelCard(str(make_card(model, "user/model")))

    assert card.data.pipeline_tag == HUB_TASKS[kind._auto_class]
    assert f'{kind._auto_class}.from_pretrained("user/model", trust' in card.text
    assert f"{model.num_parameters():,} parameters" in card.text


def test_the_card_of_a_multi_task_model_shows_a_row_of_every_task(build_multitask, tasks):
    model = build_multitask(tasks | {"text": {"problem_type": "masked_lm"}})

    text = str(make_card(model, "user/model"))

    assert 'model.predict("tone", ["A sentence."])' in text
    assert 'model.predict("near", [("A first.", "A second.")])' in text
    assert 'predict("text"' not in text


def test_the_card_names_the_model_of_the_hub_that_it_came_from(tiny_sizes, tmp_path):
    model = modeling_minbert.MinBertModel(MinBertConfig(**tiny_sizes))

    for start, base in (("owner/bert", "owner/bert"), (str(tmp_path), None), ("", None)):
        model.name_or_path = start
        assert make_card(model, "user/model").data.base_model == base


def test_a_question_is_asked_with_its_text(build_multitask):
    model = build_multitask({"facts": {"problem_type": "question_answering"}})

    assert 'model.predict("facts", [("A question?", "A text.")])' in str(make_card(model, "a/b"))


def test_the_examples_of_a_card_load_from_the_hub_and_its_command_stays():
    card = r"""Auto.from_pretrained("runs/a", trust_remote_code=True)
path = "runs/a\" \\"
model = Auto.from_pretrained(path)
`pipeline("minbert-multi-task", model="runs/a", trust_remote_code=True)`
Command: `accelerate launch finetune.py a.yaml --model_name_or_path owner/bert`
"""

    found = _point_to("user/model", card, {"runs/a"})

    assert found.count("user/model") == 3
    assert "runs/a" not in found
    assert 'path = "user/model"\n' in found
    assert "owner/bert`" in found


def test_ids_of_other_models_stay_in_a_card():
    card = """# small
teacher = AutoModel.from_pretrained("owner/teacher", trust_remote_code=True)
pipe = pipeline("fill-mask", model="google-bert/bert-base-uncased")
tokenizer = AutoTokenizer.from_pretrained('owner/teacher')
path = "data/train.csv"
rows = read(path)
model = AutoModel.from_pretrained("first/small")
"""
    found = _point_to("user/model", card, {"runs/a"})

    assert found == card.replace("first/small", "user/model")


class NoCards:
    """A Hub whose repositories have no card yet."""

    @staticmethod
    def file_exists(*_):
        return False


@pytest.mark.parametrize("own", [True, False])
def test_the_card_of_another_model_is_not_taken(build_multitask, tasks, tiny_sizes, tmp_path, own):
    model = build_multitask(tasks)
    start = model if own else modeling_minbert.MinBertModel(MinBertConfig(**tiny_sizes))
    start.save_pretrained(tmp_path)
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n# Another\n")
    model.name_or_path = str(tmp_path)

    card = _find_card(model, "user/model", NoCards())

    assert ("# Another" in card.text) == own
    assert card.data.license == ("mit" if own else None)


class OneCard:
    """A Hub whose repository has a card with a result."""

    def __init__(self, path):
        path.write_text(CARD)
        self.path = path

    @staticmethod
    def file_exists(*_):
        return True

    def hf_hub_download(self, *_):
        return str(self.path)


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

    card = _find_card(model, "user/model", NoCards())

    is_taken = change in ("reduced", None)
    assert bool(card.data.eval_results) == is_taken
    assert ("describes other weights" in caplog.text) == (not is_taken)


def test_the_card_on_the_hub_loses_the_results_of_the_weights_before(
    build_multitask, tasks, tmp_path, caplog
):
    card = _find_card(build_multitask(tasks), "user/model", OneCard(tmp_path / "README.md"))

    assert card.data.license == "mit"
    assert card.data.eval_results is None
    assert "model-index" not in str(card)
    assert "of the weights before" in caplog.text.replace("\n", " ")
