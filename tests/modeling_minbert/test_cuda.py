"""On a GPU packed batches are as exact as in transformers, isolated, and wait for nothing."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import BertConfig, BertForMaskedLM

from modeling_minbert import (
    MinBertConfig,
    MinBertForMaskedLM,
    MinBertForMultiTask,
    MinBertForPreTraining,
    MinBertSequences,
)

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]

LENGTHS = torch.tensor([37, 1, 128, 64, 5, 90, 17, 128])
TOKENS = int(LENGTHS.sum())
SIZES = {  # heads of 16: the kernels take multiples of eight
    "vocab_size": 101,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
    "initializer_range": 0.2,
}
PRETRAINING = {"problem_type": "pretraining"}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])


def make_batches(seed=0):
    """Return a padded batch and the same one packed, with labels for every third token."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.arange(128) < LENGTHS[:, None]).long()
    ids = torch.randint(1, 101, mask.shape, generator=generator) * mask
    labels = torch.where((torch.arange(128) % 3 == 0) & (mask == 1), ids, -100)
    real = mask == 1
    packed = {
        "input_ids": ids[real].unsqueeze(0),
        "labels": labels[real].unsqueeze(0),
        "position_ids": torch.arange(128).expand(mask.shape)[real].unsqueeze(0),
        "cu_seq_lens_q": F.pad(LENGTHS.cumsum(0), (1, 0)).int(),
        "label_positions": (labels[real] != -100).nonzero().squeeze(1),
    }
    padded = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    moved = [{key: value.cuda() for key, value in each.items()} for each in (padded, packed)]
    moved[1]["max_length_q"] = 128
    return moved


def build_pair(attention="sdpa", dropout=0.0):
    """Return our masked language model and BERT's with the same weights, on the GPU."""
    torch.manual_seed(0)
    settings = {**SIZES, **dict.fromkeys(NO_DROPOUT, dropout), "attn_implementation": attention}
    bert = BertForMaskedLM(BertConfig(**settings))
    ours = MinBertForMaskedLM(MinBertConfig(**settings))
    ours.load_state_dict(bert.state_dict())
    return ours.cuda().train(), bert.cuda().train()


def gradients_of(model):
    """Return all gradients as one vector in float64."""
    grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
    return torch.cat([grad.flatten().double() for grad in grads])


@every_dtype
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_errors_match_the_kernels_of_transformers(dtype, layout):
    """The reference is the eager attention of transformers in float64."""
    padded, packed = make_batches()
    batch = packed if layout == "packed" else padded
    results = []
    for which, attention in ((1, "eager"), (1, "sdpa"), (0, "sdpa")):
        model = build_pair(attention)[which].to(torch.float64 if attention == "eager" else dtype)
        loss = model(**(batch if which == 0 else padded)).loss
        loss.backward()
        results.append((loss.detach().double(), gradients_of(model)))

    (loss, gradients), theirs, ours = results

    floor = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}[dtype]
    assert abs(ours[0] - loss) <= 1.5 * abs(theirs[0] - loss) + floor * loss
    error, allowed = ((each[1] - gradients).norm() / gradients.norm() for each in (ours, theirs))
    assert error <= 1.5 * allowed + floor / 10


@every_dtype
@pytest.mark.parametrize("chosen", [False, True], ids=["all", "some"])
def test_attention_is_that_under_a_block_diagonal_mask(dtype, chosen):
    generator = torch.Generator().manual_seed(0)
    select = torch.arange(3, TOKENS, 7) if chosen else None
    rows = (TOKENS if select is None else len(select), TOKENS, TOKENS)
    states = [torch.randn(n, 64, generator=generator).cuda() for n in rows]
    offsets = F.pad(LENGTHS.cumsum(0), (1, 0)).int().cuda()
    sequences = MinBertSequences(offsets, 128, None, (1, TOKENS))
    given = [x.to(dtype).requires_grad_() for x in states]

    actual = sequences.attend(*given, 4, select=None if select is None else select.cuda())
    actual.float().square().sum().backward()

    reference = [x.detach().double().requires_grad_() for x in given]
    q, k, v = (x.unflatten(1, (4, -1)).transpose(0, 1) for x in reference)
    owner = torch.arange(len(LENGTHS)).repeat_interleave(LENGTHS).cuda()
    mask = (owner if select is None else owner[select.cuda()])[:, None] == owner
    expected = F.scaled_dot_product_attention(q, k, v, mask).transpose(0, 1).flatten(1)
    expected.square().sum().backward()
    near = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]
    assert_close(actual.double(), expected, atol=near, rtol=near)
    for x, y in zip(given, reference, strict=True):
        assert (x.grad.double() - y.grad).norm() <= near * y.grad.norm()


@every_dtype
def test_dropout_zeroes_weights_and_scales_the_rest(dtype):
    """The values are one-hot, so that the context is the weights themselves."""
    lengths, rate, size = torch.full((64,), 64), 0.25, 64
    total = 64 * 64
    offsets = F.pad(lengths.cumsum(0), (1, 0)).int().cuda()
    sequences = MinBertSequences(offsets, 64, None, (1, total))
    query = torch.zeros(total, size, dtype=dtype, device="cuda", requires_grad=True)
    values = torch.eye(size, dtype=dtype, device="cuda").repeat(64, 1)
    torch.manual_seed(0)

    weights = sequences.attend(query, query, values, 1, dropout=rate).float()

    kept = weights != 0
    sigma = (rate * (1 - rate) / kept.numel()) ** 0.5
    assert abs(1 - kept.float().mean().item() - rate) < 4 * sigma + 1 / 256  # flash has 256 steps
    expected = torch.full_like(weights[kept], 1 / 64 / (1 - rate))
    assert_close(weights[kept], expected, atol=0.0, rtol=1e-2)


@pytest.fixture
def no_waiting():
    """Return a function that makes every wait for the GPU an error, until the test ends."""
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("pooling", ["cls", "pooler", "mean", "max"])
@pytest.mark.parametrize("pairs", ["joint", "separate"])
def test_a_step_of_a_task_waits_for_nothing(no_waiting, pooling, pairs):
    task = {"problem_type": "paraphrase", "pair_encoding": pairs, "pooling": pooling}
    model = MinBertForMultiTask(MinBertConfig(**SIZES, tasks={"mine": task})).cuda().bfloat16()
    batch = make_batches()[1]
    del batch["label_positions"]
    batch["labels"] = torch.ones(8 if pairs == "joint" else 4, device="cuda")
    optimizer = torch.optim.AdamW(model.train().parameters(), fused=True)
    model(**batch).loss.backward()
    optimizer.step()
    torch.cuda.synchronize()

    no_waiting()
    optimizer.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()

    torch.cuda.set_sync_debug_mode("default")
    assert loss.isfinite()


@pytest.mark.parametrize("as_task", [False, True], ids=["model", "task"])
def test_a_step_of_pre_training_waits_for_nothing(no_waiting, as_task):
    config = MinBertConfig(**SIZES)
    model = MinBertForPreTraining(config)
    batch = make_batches()[1]
    batch["next_sentence_label"] = torch.arange(8, device="cuda") % 2
    if as_task:
        model = MinBertForMultiTask(MinBertConfig(**SIZES, tasks={"text": PRETRAINING}))
        batch["task"] = "text"
    model = model.cuda().bfloat16().train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(**batch).loss.backward()
    optimizer.step()
    torch.cuda.synchronize()

    no_waiting()
    optimizer.zero_grad()
    outputs = model(**batch)
    outputs.loss.backward()
    optimizer.step()

    torch.cuda.set_sync_debug_mode("default")
    assert_close(outputs.loss, outputs.mlm_loss + outputs.nsp_loss)


def test_a_compiled_step_equals_an_eager_one_and_compiles_once():
    ours, _ = build_pair()
    compiled = torch.compile(ours, fullgraph=True, dynamic=False)
    torch._dynamo.utils.counters.clear()

    for seed in range(3):
        batch = make_batches(seed)[1]
        losses, gradients = [], []
        for model in (ours, compiled):
            ours.zero_grad()
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            losses.append(loss.detach())
            gradients.append(gradients_of(ours))
        assert_close(*losses, atol=0.0, rtol=1e-2)
        assert (gradients[0] - gradients[1]).norm() < 0.05 * gradients[0].norm()

    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
