"""Losses of a batch against sentence-transformers, torch, scipy, and numbers made by hand."""

import pytest
import torch
from scipy.special import rel_entr, softmax as scipy_softmax
from torch.nn import functional as F
from torch.testing import assert_close

from modeling_minbert import symmetric_kl
from modeling_minbert.ranking import cosent, multiple_negatives_ranking, sequence_keys

EXACT = {"atol": 1e-6, "rtol": 1e-5}


def vectors(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).requires_grad_()


def theirs(name, **options):
    """Return a loss of sentence-transformers that reads vectors."""
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    return getattr(losses, name)(None, **options).compute_loss_from_embeddings


def assert_equal_with_gradients(ours, reference, *inputs):
    """Compare two scalars and their gradients with respect to the inputs."""
    assert_close(ours, reference, **EXACT)
    for actual, expected in zip(
        torch.autograd.grad(ours, inputs), torch.autograd.grad(reference, inputs), strict=True
    ):
        assert_close(actual, expected, **EXACT)


@pytest.mark.parametrize("scale", [1.0, 20.0])
@pytest.mark.parametrize("negatives", [0, 1, 2])
def test_ranking_equals_sentence_transformers(scale, negatives):
    columns = [vectors(7, 5, seed=column) for column in range(2 + negatives)]
    reference = theirs("MultipleNegativesRankingLoss", scale=scale)

    actual = multiple_negatives_ranking(columns[0], torch.cat(columns[1:]), scale=scale)

    assert_equal_with_gradients(actual, reference(columns, None), *columns)


@pytest.mark.parametrize("labels", [[0.0, 1, 5, 2.5, 2.5, 5, 3], [1.0, 0, 0, 1, 1, 0, 1]])
def test_cosent_equals_sentence_transformers(labels):
    u, v, labels = vectors(7, 5), vectors(7, 5, seed=1), torch.tensor(labels)

    actual = cosent(F.cosine_similarity(u, v), labels, scale=20.0)

    assert_equal_with_gradients(actual, theirs("CoSENTLoss")([u, v], labels), u, v)


def test_a_batch_without_positives_costs_nothing_and_has_a_gradient():
    u, v = vectors(3, 5), vectors(3, 5, seed=1)
    nobody = torch.zeros(3, dtype=torch.bool)

    loss = multiple_negatives_ranking(u, v, scale=20, is_anchor=nobody)

    assert loss.item() == 0
    for gradient in torch.autograd.grad(loss, (u, v)):
        assert_close(gradient, torch.zeros(3, 5))


def test_a_label_that_its_output_does_not_have_is_refused(build_multitask, tiny_batch):
    classes = [["a", "b", "c"], ["d", "e"]]
    head = {"problem_type": "multi_output_classification", "outputs": ["x", "y"]}
    model = build_multitask({"mine": head | {"classes": classes}})
    labels = torch.tensor([[2, 2]] + [[0, -100]] * (len(tiny_batch["input_ids"]) - 1))

    with pytest.raises(ValueError, match="the label 2 of the output 'y' must be a whole number"):
        model(**tiny_batch, labels=labels, task="mine")


def test_equal_texts_are_no_negatives():
    # Rows (a, b), (c, b), (b, c). For row 0 the second of row 1 is its own positive, which leaves
    # one negative; for rows 1 and 2 all others are their own anchor or positive.
    anchors, candidates = vectors(3, 5), vectors(3, 5, seed=1)
    keys = torch.tensor([1, 3, 2]), torch.tensor([2, 2, 3])
    cosines = 2 * F.cosine_similarity(anchors[:, None], candidates, dim=-1)

    loss = multiple_negatives_ranking(anchors, candidates, scale=2, keys=keys)

    expected = cosines[0, [0, 2]].logsumexp(0) - cosines[0, 0]
    assert_close(loss, expected / 3)


def test_divergence_equals_scipy():
    logits, other = vectors(7, 4), vectors(7, 4, seed=1)
    p, q = (scipy_softmax(x.detach().double().numpy(), axis=1) for x in (logits, other))

    actual = symmetric_kl(logits, other)

    expected = torch.from_numpy((rel_entr(p, q) + rel_entr(q, p)).sum(axis=1)).float()
    assert_close(actual, expected)
    assert (actual > 0).all()
    assert_close(symmetric_kl(logits, logits), torch.zeros(7))


def test_keys_are_equal_only_for_equal_sequences():
    rows = [[2, 5, 3], [2, 5, 3], [5, 2, 3], [2, 5], [2, 5, 0, 3], [2, 5, 3, 0], [0], [], [0, 0]]
    length = max(map(len, rows))
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])

    keys = sequence_keys(ids, mask, None).tolist()

    assert keys[0] == keys[1]
    assert len(set(keys)) == len(rows) - 1


def test_keys_are_the_same_padded_on_either_side_and_packed():
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(30_000, (length,), generator=generator) for length in (4, 1, 9, 6)]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.arange(9) < torch.tensor([4, 1, 9, 6])[:, None]
    offsets = torch.tensor([0, 4, 5, 14, 20], dtype=torch.int32)

    right = sequence_keys(padded, mask.long(), None)

    assert right.tolist() == sequence_keys(padded.flip(1).flip(1), mask, None).tolist()
    left = [F.pad(row, (9 - len(row), 0)) for row in rows]
    assert sequence_keys(torch.stack(left), mask.flip(1), None).tolist() == right.tolist()
    assert sequence_keys(torch.cat(rows)[None], None, offsets).tolist() == right.tolist()
    whole = sequence_keys(rows[2][None], None, None)
    assert whole.tolist() == right[2:3].tolist()
