"""NEFTune: the noise of transformers for rows of one length, else scaled by each length."""

import datasets
import pytest
import torch

from modeling_minbert import MinBertForMultiTask
from tests.trainers.stock import FixedSeeds, as_stock, losses, train_stock
from tests.trainers.tiny import make_config, make_model, make_rows
from trainers import Task, TaskCollator

ALPHA = 7.0


def even_rows(count=32, length=6):
    """Rows of one length."""
    rows = [row for row in make_rows("moods", 200) if row["length"] >= length][:count]
    for row in rows:
        for name in ("input_ids", "token_type_ids"):
            row[name] = row[name][:length]
    return datasets.Dataset.from_list(rows)


def test_a_run_on_sequences_of_one_length_equals_that_of_transformers(make_trainer, tmp_path):
    rows = even_rows()
    own = {"tasks": [Task("moods", "classification", rows, rows)]}
    options = {"max_steps": 8, "neftune_noise_alpha": ALPHA, "callbacks": [FixedSeeds()]}
    plain = make_trainer(own=own, max_steps=8)
    plain.train()
    trainer = make_trainer(own=own, **options)
    stock, same = as_stock(trainer.model, "moods"), as_stock(trainer.model, "moods")
    batches = list(trainer.get_train_dataloader())
    trainer.train()
    other = make_trainer(own=own, model=same, **options)
    other.train()

    expected = train_stock(stock, batches, tmp_path, neftune_noise_alpha=ALPHA)

    assert losses(trainer) == pytest.approx(losses(expected), abs=1e-5)
    assert losses(other) == pytest.approx(losses(expected), abs=1e-5)
    assert losses(trainer) != pytest.approx(losses(plain), abs=1e-2)


def embedded(trainer, batch):
    """Return what the first layer norm gets in a training step, (T, D)."""
    seen = []
    norm = trainer.model.bert.embeddings.LayerNorm
    handle = norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].detach()))
    trainer.model.train()
    trainer.compute_loss(trainer.model, dict(batch))
    handle.remove()
    return [states.flatten(0, 1) for states in seen]


def noise_of(make_trainer, **options):
    """Return the noise of a batch of each task, its tokens, and the trainer."""
    noisy = make_trainer(neftune_noise_alpha=ALPHA, **options)
    # SimCSE without any noise is refused
    plain = make_trainer(neftune_noise_alpha=1e-9, **options)
    plain.model.load_state_dict(noisy.model.state_dict())
    for batch in list(noisy.get_train_dataloader())[:3]:
        yield (
            batch,
            *(a - b for a, b in zip(embedded(noisy, batch), embedded(plain, batch), strict=True)),
        )


def lengths_of(batch):
    if "cu_seq_lens_q" in batch:
        return batch["cu_seq_lens_q"].diff()
    return batch["attention_mask"].flatten(0, -2).sum(dim=1)


@pytest.mark.parametrize(
    ("attention", "collator"),
    [("sdpa", None), ("sdpa", TaskCollator(0)), ("eager", TaskCollator(0))],
    ids=["packed", "unpadded inside", "padded"],
)
def test_the_noise_of_a_sequence_follows_from_its_length(make_trainer, attention, collator):
    def make(**options):
        model = make_model()
        model.set_attn_implementation(attention)
        return make_trainer(model=model, **options)

    found = list(noise_of(make, own={"data_collator": collator}))

    assert [batch["task"] for batch, _ in found] == ["moods", "pairs", "scores"]
    for batch, whole in found:
        noise = whole
        if attention == "eager":
            real = batch["attention_mask"].flatten().bool()
            assert not whole[~real].any()
            noise = whole[real]
        lengths = lengths_of(batch)
        for own, length in zip(noise.split(lengths.tolist()), lengths, strict=True):
            bound = ALPHA / (length * 12) ** 0.5
            assert 0.8 * bound < own.abs().max() < 1.001 * bound


@pytest.mark.parametrize("collator", [None, TaskCollator(0)], ids=["packed", "padded"])
def test_both_copies_of_a_sentence_get_noise_of_their_own(make_trainer, collator):
    rows = make_rows("scores", 24).remove_columns("labels")
    one = [[ids[0]] for ids in rows["input_ids"]]
    types = [[[0] * len(ids[0])] for ids in one]
    rows = datasets.Dataset.from_dict({"input_ids": one, "token_type_ids": types})
    heads = {"texts": {"problem_type": "contrastive", "num_sentences": 1}}
    options = {
        "own": {"tasks": [Task("texts", "contrastive", rows)], "data_collator": collator},
        "model": MinBertForMultiTask(make_config(heads)),
    }

    (batch, noise), *_ = noise_of(make_trainer, **options)

    lengths = lengths_of(batch).repeat(2)
    assert len(noise) == lengths.sum()
    for own, length in zip(noise.split(lengths.tolist()), lengths, strict=True):
        assert 0.8 < own.abs().max() * (length * 12) ** 0.5 / ALPHA < 1.001
    assert not torch.equal(*noise.chunk(2))


@pytest.mark.parametrize(
    "methods", [{"r_drop": 1.0}, {"smart": {"weight": 1.0}}, {"weight_averaging": "ema"}]
)
def test_every_pass_of_a_step_has_the_noise(make_trainer, methods):
    """R-Drop's passes differ by it; those of SMART repeat it, so nothing else changes."""
    found = list(noise_of_passes(make_trainer, methods))

    assert found
    for noise in found:
        assert noise.abs().max() > 0.1


def noise_of_passes(make_trainer, methods):
    trainer = make_trainer(own={"methods": methods}, neftune_noise_alpha=ALPHA)
    batch = next(iter(trainer.get_train_dataloader()))
    for method in trainer.methods:
        method.begin()
    passes = embedded(trainer, batch)
    words = trainer.model.bert.embeddings.word_embeddings(batch["input_ids"]).detach()[0]
    types = trainer.model.bert.embeddings.token_type_embeddings(batch["token_type_ids"])[0]
    places = trainer.model.bert.embeddings.position_embeddings(batch["position_ids"])[0]
    noises = [states - (words + types + places).detach() for states in passes]
    if "smart" in methods:
        for noise in noises[1:]:
            torch.testing.assert_close(noise, noises[0])
    if "r_drop" in methods:
        assert len(noises) == 2
        assert not torch.equal(*noises)
    yield from noises


def test_evaluation_has_no_noise(make_trainer):
    noisy, plain = make_trainer(neftune_noise_alpha=ALPHA), make_trainer()

    assert noisy.evaluate()["eval_moods_loss"] == plain.evaluate()["eval_moods_loss"]


def test_noise_by_a_hook_cannot_be_compiled(make_trainer, tmp_path):
    with pytest.raises(ValueError, match=r"neftune_noise_alpha=7.0 adds noise by a hook, which"):
        make_trainer(neftune_noise_alpha=ALPHA, torch_compile=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("rows", "length"), [(1, 4), (2, 4), (2, 6), (3, 4)])
def test_padding_is_known_whatever_the_number_of_real_tokens(make_trainer, rows, length):
    """Two rows of four tokens padded to eight have as many real tokens as a padded row."""
    trainer = make_trainer(neftune_noise_alpha=ALPHA)
    ids = torch.randint(1, 20, (rows, 8))
    mask = (torch.arange(8) < length).long().expand(rows, 8)
    batch = {"task": "moods", "input_ids": ids * mask, "attention_mask": mask}

    trainer.model.train()
    loss = trainer.compute_loss(trainer.model, batch | {"labels": torch.zeros(rows).long()})

    assert loss.isfinite()
