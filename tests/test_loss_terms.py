"""A loss is a mean over its terms: accumulation, processes and evaluation batches do not change it.

The cases are all losses of all problem types; some labels are missing, so that batches differ in
their numbers of terms.
"""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from modeling_minbert import LOSSES
from tests.loss_cases import CASES, COMPARING, HEADS, NONE, PLAIN, logged, make_model, make_trainer
from tests.processes import run_python
from trainers import PROBLEMS, Distillation, RDrop

CLOSE = {"rtol": 1e-4, "atol": 2e-6}
ONE = {"per_device_train_batch_size": 8, "per_device_eval_batch_size": 11}
FOUR = {"per_device_train_batch_size": 2, "per_device_eval_batch_size": 2}
FOUR |= {"gradient_accumulation_steps": 4}


def assert_equal(one, four):
    """Train both, and check that losses and weights are equal."""
    one.train()
    four.train()
    assert logged(four) == pytest.approx(logged(one), rel=1e-4, abs=1e-6)
    assert logged(four, "loss") == pytest.approx(logged(one, "loss"), rel=1e-3, abs=1e-4)
    assert_close(four.model.state_dict(), one.model.state_dict(), **CLOSE)


def test_the_cases_are_all_types_and_losses():
    assert HEADS.keys() == PROBLEMS.keys()
    assert {name.rsplit("-", 1)[1] for name in CASES} >= LOSSES.keys()
    assert set(CASES) - set(PLAIN) == {name for name in CASES if name.endswith(COMPARING)}


def list_plain():
    """List the cases; all of them take half a minute."""
    seen = set()
    for name in PLAIN:
        kind = name.split("-")[0]
        yield pytest.param(name, marks=[pytest.mark.slow] if kind in seen else [])
        seen.add(kind)


@pytest.mark.parametrize("name", list(list_plain()))
def test_four_batches_of_a_step_or_an_evaluation_are_one(tmp_path, name):
    one = make_trainer(tmp_path, name, max_steps=1, **ONE)
    four = make_trainer(tmp_path, name, max_steps=1, **FOUR)

    assert_equal(one, four)
    if one.eval_dataset:
        found, expected = (trainer.evaluate()["eval_it_loss"] for trainer in (four, one))
        assert found == pytest.approx(expected, rel=1e-4)


class SecondPass:
    """Makes the second of two passes of a head differ from the first, as dropout does."""

    def __init__(self, model):
        self.passes = 0
        model.instead_of = torch.nn.Dropout()  # which r_drop asks for
        model.heads.get("it").out.register_forward_hook(self)

    def __call__(self, module, _inputs, output):
        self.passes += module.training
        return output if self.passes % 2 else output * 1.2


def teach(shape):
    """Outputs of a teacher, of which some rows have none."""
    values = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    values[::5] = np.nan
    return Distillation({"it": values}, alpha=0.4)


METHODS = {
    "r_drop": ("classification-0-cross_entropy", lambda: [RDrop(2.0)]),
    "r_drop of several labels": ("multi_label_classification-0-bce", lambda: [RDrop(2.0)]),
    "classes": ("classification-0-cross_entropy", lambda: [teach((16, 3))]),
    "numbers, and r_drop": ("regression-1-mse", lambda: [teach((16, 2)), RDrop(2.0)]),
    "several labels": ("multi_label_classification-0-bce", lambda: [teach((16, 3))]),
    "tags": ("token_classification-0", lambda: [teach((89, 3))]),
    "answers": ("question_answering-0", lambda: [teach((89, 2))]),
}


@pytest.mark.parametrize("method", METHODS)
def test_so_are_they_with_what_a_method_adds(tmp_path, method):
    name, make = METHODS[method]
    models = [make_model(*CASES[name]) for _ in range(2)]
    if "r_drop" in method:
        list(map(SecondPass, models))
    options = {"max_steps": 2, "eval_strategy": "no"}
    one, four = (
        make_trainer(tmp_path, name, methods=make(), model=model, **options, **batches)
        for model, batches in zip(models, (ONE, FOUR), strict=True)
    )

    assert_equal(one, four)


@pytest.mark.parametrize("name", [name for name in CASES if name not in PLAIN])
def test_a_loss_that_compares_rows_is_a_mean_over_rows_of_what_each_batch_has(tmp_path, name):
    """By nature it depends on the batches: a row is compared with those of its own."""
    trainer = make_trainer(tmp_path, name, max_steps=1, **FOUR)
    batches = list(trainer.get_train_dataloader())[:4]
    model = make_model(*CASES[name]).train()
    sums = torch.zeros(2)
    for batch in batches:
        labels = batch.get("labels", torch.ones(2))  # of a contrastive task
        count = (labels != NONE).sum()
        if "ranking" in name:
            count = (labels >= (3.2 if "similarity" in name else 1)).sum()  # positive pairs
        sums += torch.stack([model(**batch).loss.detach() * count, count])

    trainer.train()

    assert logged(trainer) == [pytest.approx(float(sums[0] / sums[1]), rel=1e-4)]


@pytest.mark.parametrize("name", CASES)
def test_a_batch_without_labels_has_the_loss_0(name):
    kind, head = CASES[name]
    model = make_model(kind, head).train()
    texts = head.get("num_sentences") or (2 if head.get("pair_encoding") == "separate" else None)
    ids = torch.randint(1, 20, (2, texts, 5) if texts else (2, 5))
    columns = len(head.get("labels") or head.get("targets") or ())
    labels = {
        "token_classification": (2, 5), "masked_lm": (2, 5), "pretraining": (2, 5),
        "question_answering": (2, 2), "multi_label_classification": (2, columns),
        "regression": (2, columns) if columns else (2,), "multi_output_classification": (2, 2),
    }.get(kind, (2,))  # fmt: skip
    given = {"labels": torch.full(labels, NONE)}
    if kind in ("regression", "multi_label_classification", "paraphrase", "similarity"):
        given["labels"] = given["labels"].float()
    if kind == "pretraining":
        given["next_sentence_label"] = torch.full((2,), NONE)
    if kind == "contrastive":
        given, ids = {}, torch.zeros_like(ids)

    loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), task="it", **given).loss

    assert float(loss.detach()) == 0
    loss.backward()
    assert not any(x.grad is not None and x.grad.any() for x in model.parameters())


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What both of two processes found for every case."""
    folder = tmp_path_factory.mktemp("ranks")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run_python(*launch, "-m", "tests.loss_cases", folder, folder=folder)
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_processes_are_one_with_twice_the_batch(tmp_path, ranks, name):
    one = make_trainer(tmp_path, name, per_device_train_batch_size=8, per_device_eval_batch_size=3)

    one.train()

    for losses, weights, held_out in (rank[name] for rank in ranks):
        assert losses == pytest.approx(logged(one), rel=1e-4, abs=1e-6)
        assert_close(weights, dict(one.model.state_dict()), **CLOSE)
        if held_out is not None:
            assert held_out == pytest.approx(one.evaluate()["eval_it_loss"], rel=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_weights_smoothing_a_teacher_and_r_drop_are_the_sum_written_out(tmp_path, alpha):
    """In float64: weights and smoothing are of the labels, the temperature is of the teacher."""
    name, weight, smooth, warm = "classification-0-cross_entropy", [0.5, 2.0, 4.0], 0.3, 3.0
    kind, head = CASES[name]
    model = make_model(kind, {**head, "class_weights": weight})
    values = np.random.default_rng(5).normal(size=(16, 3))
    values[::5] = np.nan
    methods = [Distillation({"it": values}, alpha=alpha, temperature=warm), RDrop(2.0)]
    options = {"max_steps": 1, "label_smoothing_factor": smooth}
    SecondPass(model)
    trainer = make_trainer(tmp_path, name, model=model, methods=methods, **ONE, **options)
    seen = []
    model.heads.get("it").out.register_forward_hook(lambda *given: seen.append(given[2].detach()))
    batch = next(iter(trainer.get_train_dataloader()))

    trainer.train()

    first, second = (logits.double() for logits in seen[-2:])
    places = [trainer.tasks["it"].train["input_ids"].index(ids) for ids in real_ids(batch)]
    labels, teacher = batch["labels"], torch.tensor(values[places])
    given, taught = labels != NONE, ~teacher.isnan().any(dim=1)
    share = given.sum() / (given | taught).sum()
    loss = torch.zeros((), dtype=torch.float64)
    for logits in (first, second):
        logs = logits.log_softmax(dim=1)
        rows = [
            weight[y] * ((1 - smooth) * -logs[place, y] + smooth * -logs[place].mean())
            for place, y in enumerate(labels.tolist())
            if y != NONE
        ]
        p = (teacher / warm).softmax(dim=1)
        kl = (p * (p.log() - (logits / warm).log_softmax(dim=1))).sum(dim=1)[taught]
        loss += ((1 - alpha) * share * sum(rows) / len(rows) + alpha * warm**2 * kl.mean()) / 2
    p, q = first.softmax(dim=1), second.softmax(dim=1)
    loss += 2.0 / 2 * ((p - q) * (p.log() - q.log())).sum(dim=1).mean()
    assert logged(trainer, "loss") == [pytest.approx(float(loss), abs=1e-4)]


def real_ids(batch):
    """List the tokens of the rows of a batch, packed or padded."""
    if "cu_seq_lens_q" in batch:
        lengths = batch["cu_seq_lens_q"].diff().tolist()
        return [row.tolist() for row in batch["input_ids"][0].split(lengths)]
    rows = zip(batch["input_ids"], batch["attention_mask"], strict=True)
    return [ids[mask > 0].tolist() for ids, mask in rows]
