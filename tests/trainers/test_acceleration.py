"""Compiled steps and buffers of gradients give the training of plain steps."""

from contextlib import nullcontext

import datasets
import pytest
import torch
from transformers import TrainerCallback, TrainingArguments

from tests.trainers.tiny import make_model, make_rows
from trainers import Task
from trainers.training.checks import static_shapes


@pytest.fixture
def clean_dynamo():
    """Forget compiled programs before and after."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield torch._dynamo.utils.counters
    torch._dynamo.reset()


def test_every_shape_has_its_program_while_a_run_lasts(tmp_path, clean_dynamo):
    from torch._dynamo import config

    args = TrainingArguments(str(tmp_path), use_cpu=True, torch_compile=True)
    before = config.automatic_dynamic_shapes, config.recompile_limit

    with static_shapes(args, tasks=2):
        double = torch.compile(lambda x: 2 * x, backend="eager")
        for size in range(2, 22):
            double(torch.ones(size))

    assert clean_dynamo["stats"]["unique_graphs"] == 20
    assert (config.automatic_dynamic_shapes, config.recompile_limit) == before


def test_without_a_compiler_nothing_is_set(tmp_path):
    from torch._dynamo import config

    with static_shapes(TrainingArguments(str(tmp_path), use_cpu=True), tasks=99):
        assert config.recompile_limit < 99
        assert config.automatic_dynamic_shapes


def even_rows():
    """28 rows of 8 tokens: with 64 tokens a batch, two batches of eight rows and two of six."""
    rows = [row for row in make_rows("moods", 200) if row["length"] >= 8][:28]
    for row in rows:
        for name in ("input_ids", "token_type_ids"):
            row[name] = row[name][:8]
    return datasets.Dataset.from_list(rows)


def losses(trainer):
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


class Programs(TrainerCallback):
    """Note how many programs there are after each epoch."""

    def __init__(self, counters):
        self.counters = counters
        self.seen = []

    def on_epoch_end(self, *_, **__):
        self.seen.append(self.counters["frames"]["ok"])


@pytest.mark.slow
# the filter of tests turns dynamo's internal warnings into failures
@pytest.mark.filterwarnings("ignore")
def test_compiled_training_is_the_plain_one_and_compiles_in_the_first_epoch(
    make_trainer, clean_dynamo
):
    programs = Programs(clean_dynamo)

    def run(**options):
        own = {
            "tasks": [Task("moods", "classification", even_rows(), make_rows("moods", 5))],
            "max_tokens_per_batch": 64,
        }
        model = make_model(layers=1)
        return losses(make_trainer(model=model, own=own, num_train_epochs=3, **options))

    expected = run()
    compiled = run(torch_compile_backend="aot_eager", callbacks=[programs], eval_strategy="epoch")

    assert compiled == pytest.approx(expected, rel=1e-5)
    assert len(compiled) == 12
    first, *later = programs.seen
    assert later == [first, first]
    assert first == 2  # two shapes


class Watch(TrainerCallback):
    """Note where the gradient of the word embedding is at every step."""

    def __init__(self):
        self.places = set()

    def on_pre_optimizer_step(self, *_, model, **__):
        self.places.add(model.get_input_embeddings().weight.grad.data_ptr())


def train(make_trainer, **options):
    watch = Watch()
    trainer = make_trainer(
        dropout=0.2,
        callbacks=[watch],
        **({"own": {"steps_per_epoch": 9}, "num_train_epochs": 2} | options),
    )
    trainer.train(resume_from_checkpoint=options.pop("resume", None))
    return trainer.model.state_dict(), watch.places


@pytest.mark.parametrize("accumulation", [1, 3])
def test_a_gradient_that_is_reused_gives_the_same_training(make_trainer, monkeypatch, accumulation):
    options = {"gradient_accumulation_steps": accumulation, "learning_rate": 1e-3}
    reused, places = train(make_trainer, **options)
    monkeypatch.setattr("trainers.training.multitask.reused_gradients", lambda _: nullcontext())
    plain, _ = train(make_trainer, **options)

    assert len(places) == 1
    torch.testing.assert_close(dict(reused), dict(plain), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{"torch_compile": True}, {"optim": "galore_adamw_layerwise", "optim_target_modules": "all"}],
)
def test_who_looks_at_gradients_elsewhere_gets_fresh_ones(make_trainer, options):
    from trainers.training.checks import reused_gradients

    plain, special = make_trainer(), make_trainer(**options)
    weights = [trainer.model.get_input_embeddings().weight for trainer in (plain, special)]

    with reused_gradients(plain), reused_gradients(special):
        assert [hasattr(weight, "buffers") for weight in weights] == [True, False]
    assert not hasattr(weights[0], "buffers")
