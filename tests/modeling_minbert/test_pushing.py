"""The card of a pushed model; the Hub itself is in ``tests/test_hub.py``."""

import pytest

import modeling_minbert
from modeling_minbert.sharing import find_card


def test_a_push_without_a_network_has_a_clear_error(build_multitask, tasks):
    with pytest.raises(OSError, match="HF_HUB_OFFLINE"):
        build_multitask(tasks).push_to_hub("user/model")


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
