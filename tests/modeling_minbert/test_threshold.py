"""The decision threshold of paraphrases, where the loss teaches none."""

import pytest
import torch
from torch.testing import assert_close

from modeling_minbert import MinBertConfig, MinBertForMultiTask, best_threshold

RANKED = {
    "problem_type": "paraphrase",
    "pair_encoding": "separate",
    "head": "cosine",
    "loss": "multiple_negatives_ranking",
}


def accuracy(cosines, is_above, threshold):
    return ((cosines > threshold) == is_above).double().mean().item()


@pytest.mark.parametrize("seed", range(3))
def test_it_is_as_good_as_in_sentence_transformers(seed):
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    generator = torch.Generator().manual_seed(seed)
    cosines = torch.rand(200, generator=generator, dtype=torch.float64) * 2 - 1
    is_above = torch.rand(200, generator=generator) < (cosines + 1) / 2

    threshold = best_threshold(cosines, is_above)

    evaluator = evaluation.BinaryClassificationEvaluator
    best, _ = evaluator.find_best_acc_and_threshold(
        cosines.numpy(), is_above.long().numpy(), high_score_more_similar=True
    )
    assert accuracy(cosines, is_above, threshold) == best


@pytest.mark.parametrize(
    ("loss", "threshold"),
    [("multiple_negatives_ranking", None), ("cosine_embedding", None), ("bce", 0.5), ("mse", 0.5)],
)
def test_a_loss_without_a_threshold_leaves_it_open(tiny_sizes, loss, threshold):
    config = MinBertConfig(**tiny_sizes, tasks={"mine": RANKED | {"loss": loss}})

    assert config.task("mine").threshold == threshold


def test_a_fitted_threshold_decides_and_is_saved(build_multitask, tmp_path):
    model = build_multitask({"mine": RANKED, "other": RANKED})
    cosines = torch.tensor([[0.1], [0.7], [0.9], [0.75]])
    logits = model.heads["mine"].to_logits(cosines)
    labels = torch.tensor([0, 0, 1, -100])

    threshold = model.fit_threshold("mine", logits, labels)

    assert threshold == pytest.approx(0.8)
    again = model.heads["mine"].to_logits(cosines)
    assert model.decode("mine", again).tolist() == [0, 0, 1, 0]
    assert_close(again, 20 * (cosines - 0.8))
    assert model.fit_threshold("mine", again, labels) == pytest.approx(0.8)
    model.train()  # in which the loss does not see it
    assert model.fit_threshold("mine", again, labels) == pytest.approx(0.8)
    model.eval()
    model.save_pretrained(tmp_path)
    loaded = MinBertForMultiTask.from_pretrained(tmp_path)
    assert loaded.config.task("mine").threshold == model.heads["mine"].threshold
    assert loaded.heads["mine"].threshold == model.heads["mine"].threshold
    assert loaded.config.task("other").threshold is None
    assert loaded.heads["other"].threshold == 0.5


def test_other_tasks_have_no_threshold(build_multitask):
    model = build_multitask({"mine": {"problem_type": "paraphrase"}})

    with pytest.raises(ValueError, match="'mine', a paraphrase with head 'linear', has no"):
        model.fit_threshold("mine", torch.zeros(2, 1), torch.tensor([0, 1]))


def test_a_threshold_needs_labels(build_multitask):
    model = build_multitask({"mine": RANKED})

    with pytest.raises(ValueError, match="no labeled pairs to choose a threshold by"):
        model.fit_threshold("mine", torch.zeros(2, 1), torch.tensor([-100, -100]))
