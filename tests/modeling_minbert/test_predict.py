"""``predict``, ``encode`` and transformers' pipelines."""

import re

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from modeling_minbert import MinBertForMultiTask, MinBertModel

SENTENCES = ["the cat sat", "a dog", "the bird sang in the tree", "", "a cat is not a dog"]


def test_the_tokenizer_is_looked_for_where_the_weights_were(model, tokenizer, tmp_path):
    model.save_pretrained(tmp_path / "sub")
    tokenizer.save_pretrained(tmp_path / "sub")

    for kind in (MinBertForMultiTask, MinBertModel):
        found = kind.from_pretrained(tmp_path, subfolder="sub").eval()
        again, _ = kind.from_pretrained(tmp_path, subfolder="sub", output_loading_info=True)

        for one in (found, again.eval()):
            assert_close(one.encode(SENTENCES), model.encode(SENTENCES))


@pytest.mark.parametrize(("task", "row"), [("tone", "the cat sat"), ("same", ("a dog", "a cat"))])
def test_a_prediction_names_the_label_and_its_probability(model, tokenizer, task, row):
    (prediction,) = model.predict(task, [row])

    texts = [row] if isinstance(row, str) else row
    logits = model(**tokenizer(*texts, return_tensors="pt"), task=task).logits[0].detach()
    if task == "same":
        logits = torch.cat([torch.zeros(1), logits])  # a sigmoid is a softmax against zero
    probabilities = logits.softmax(dim=-1)
    labels = model.config.task(task).labels
    assert prediction["label"] == labels[probabilities.argmax()]
    assert prediction["score"] == pytest.approx(probabilities.max().item(), abs=1e-5)
    model.config.return_dict = False  # of calls of the model
    assert model.predict(task, [row]) == [prediction]


@pytest.mark.parametrize("broken", [False, True])
def test_the_training_mode_of_every_module_comes_back(model, broken):
    model.train()
    model.bert.embeddings.eval()  # as in a frozen part
    before = [module.training for module in model.modules()]
    seen = []
    hook = model.bert.encoder.register_forward_hook(lambda module, *_: seen.append(module.training))

    if broken:
        model.bert.encoder.register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError) as error:  # holds the traceback and its frames
            model.encode(SENTENCES)
        assert error.value is not None
    else:
        model.encode(SENTENCES)
    hook.remove()

    assert seen == [False]
    assert [module.training for module in model.modules()] == before


@pytest.mark.parametrize(
    ("task", "rows", "error", "message"),
    [
        ("tone", "the cat", TypeError, "tone: pass a list of sentences, not one string"),
        ("tone", [("a", "b")], ValueError, "row 0 must be a sentence"),
        ("tone", ["a", None], ValueError, "row 1 must be a sentence, got None"),
        ("tone", ["a", float("nan")], ValueError, "row 1 must be a sentence, got nan"),
        ("same", [("a", "b"), "cd"], ValueError, "row 1 must be a pair of sentences, got 'cd'"),
        ("near", [("a", "b", "c")], ValueError, "row 0 must be a pair of sentences"),
        ("near", [("a", 1)], ValueError, "row 0 must be a pair of sentences"),
        ("nli", ["a"], ValueError, "unknown task 'nli'; known: tone, same, near, echo"),
        ("tone", None, TypeError, "tone: pass a list of rows, not None"),
        ("tone", np.array("a"), TypeError, "tone: pass a list of rows, not ndarray"),
        # whose order differs from run to run
        ("tone", {"a", "b"}, TypeError, "tone: pass a list of rows, not set"),
    ],
)
def test_an_invalid_row_is_refused(model, task, rows, error, message):
    with pytest.raises(error, match=message):
        model.predict(task, rows)


def test_impossible_settings_are_refused(model):
    with pytest.raises(ValueError, match="unknown pooling 'first'; known: cls, pooler, mean, max"):
        model.encode(SENTENCES, pooling="first")
    for tokens in (-1, 2.5, "8"):
        message = f"max_tokens_per_batch={tokens!r} must be 1 or more"
        with pytest.raises(ValueError, match=re.escape(message)):
            model.encode(SENTENCES, max_tokens_per_batch=tokens)
    for count in (0, 1.5, True):
        with pytest.raises(ValueError, match=f"top_k={count!r} must be 1 or more"):
            model.predict("tone", SENTENCES, top_k=count)
    size = model.config.hidden_size
    with pytest.raises(ValueError, match=f"truncate_dim={size + 1}, but vectors have {size}"):
        model.encode(SENTENCES, truncate_dim=size + 1)
    with pytest.raises(ValueError, match="truncate_dim=0 must be 1 or more"):
        model.encode(SENTENCES, truncate_dim=0)
    with pytest.raises(ValueError, match="unknown prompt_name 'question'; known: query"):
        model.encode(SENTENCES, prompt_name="question")


def test_rows_of_an_array_are_pairs(model):
    pairs = [["the cat", "a dog"], ["a dog", "a dog"]]
    expected = model.predict("same", [tuple(pair) for pair in pairs])
    assert model.predict("same", np.array(pairs)) == model.predict("same", pairs) == expected
    assert model.predict_all(np.array(pairs)) == model.predict_all(pairs)


def test_a_model_of_no_checkpoint_asks_for_a_tokenizer(build_multitask, tasks):
    with pytest.raises(ValueError, match=r"set model\.tokenizer first"):
        build_multitask(tasks).encode(["a"])
