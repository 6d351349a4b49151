"""Compiled steps and buffers of gradients give the training of plain steps."""

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
