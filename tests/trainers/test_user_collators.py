"""Collators of a user: those of transformers, hand-written ones, and what they must return."""

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import BertTokenizer, DataCollatorForTokenClassification, DataCollatorWithPadding

from modeling_minbert import MinBertForMultiTask
from tests.trainers.tiny import PROBLEM_TYPES, VOCABULARY, make_config, make_rows, weights
from trainers import Mixed, Task, TaskCollator


@pytest.fixture
def tokenizer():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(VOCABULARY - 5))]
    return BertTokenizer(vocab={word: index for index, word in enumerate(words)})


def pad(rows):
    """Pad single sequences, with other names and an order of its own."""
    ids = pad_sequence([torch.tensor(row["input_ids"]) for row in rows], batch_first=True)
    return {
        "labels": torch.tensor([row["labels"] for row in rows]),
        "attention_mask": (ids != 0).long(),
        "input_ids": ids,
    }


def pad_each(rows, task):
    """Pad as the task needs it: separate pairs as (B, 2, L)."""
    return TaskCollator(0)([{"task": task, **row} for row in rows])


def one_task(name):
    return [Task(name, PROBLEM_TYPES[name], make_rows(name, 32), make_rows(name, 11))]


def train(make_trainer, tasks, collator, **own):
    trainer = make_trainer(own={"tasks": tasks, "data_collator": collator, **own}, max_steps=6)
    trainer.train()
    return weights(trainer), {
        name: value for name, value in trainer.evaluate().items() if not name.endswith("second")
    }


@pytest.mark.parametrize("task", ["moods", "pairs"])
@pytest.mark.parametrize("kind", ["transformers", "hand-written"])
def test_a_run_with_another_collator_equals_one_with_ours(make_trainer, tokenizer, task, kind):
    collator = DataCollatorWithPadding(tokenizer) if kind == "transformers" else pad
    expected, scores = train(make_trainer, one_task(task), TaskCollator(0))

    found, others = train(make_trainer, one_task(task), collator)

    torch.testing.assert_close(found, expected)
    assert others[f"eval_{task}_loss"] == pytest.approx(scores[f"eval_{task}_loss"], abs=1e-6)
    assert others["eval_mean"] == scores["eval_mean"]


@pytest.mark.parametrize("sampling", [None, Mixed()], ids=["single", "mixed"])
def test_a_collator_may_ask_for_the_task(make_trainer, sampling):
    tasks = [*one_task("moods"), *one_task("scores"), *one_task("pairs")]
    expected, _ = train(make_trainer, tasks, TaskCollator(0), sampling=sampling)

    found, _ = train(make_trainer, tasks, pad_each, sampling=sampling)

    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_the_rows_of_a_collator_are_plain(make_trainer):
    def collate(rows):
        assert type(rows) is list
        assert {type(row) for row in rows} == {dict}
        assert {tuple(row) for row in rows} == {("input_ids", "token_type_ids", "labels")}
        return pad(rows)

    train(make_trainer, one_task("moods"), collate)


def test_labels_of_tokens_are_padded_by_transformers(make_trainer, tokenizer):
    rows = make_rows("moods", 12).remove_columns("labels")
    rows = rows.add_column("labels", [[i % 2 for i in ids] for ids in rows["input_ids"]])
    heads = {"tags": {"problem_type": "token_classification", "labels": ["a", "b"]}}
    tasks = [Task("tags", "token_classification", rows, rows)]
    found = []
    for collator in (TaskCollator(0), DataCollatorForTokenClassification(tokenizer)):
        torch.manual_seed(0)
        model = MinBertForMultiTask(make_config(heads))
        own = {"tasks": tasks, "data_collator": collator}
        trainer = make_trainer(model=model, own=own, max_steps=6)
        trainer.train()
        found.append((weights(trainer), trainer.predict_task("tags", rows).tolist()))

    torch.testing.assert_close(found[1][0], found[0][0])


def embed(model, rows):
    batch = pad(rows)
    ids = batch.pop("input_ids")
    return {**batch, "inputs_embeds": model.bert.embeddings.word_embeddings(ids).detach()}


def test_embeddings_may_replace_ids(make_trainer):
    """The operations of a run are those of the same tokens as ids."""
    counts = []
    for collate in (lambda *_: pad, lambda model: lambda rows: embed(model, rows)):
        model = make_trainer().model
        trainer = make_trainer(
            model=model,
            own={"tasks": one_task("moods"), "data_collator": collate(model)},
            max_steps=3,
        )
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        counts.append((trainer.state.total_flos, losses[0], trainer.evaluate()["eval_mean"]))

    assert counts[0][0] == counts[1][0] > 0
    assert counts[0][1] == pytest.approx(counts[1][1])


def without(name):
    return lambda rows: {key: value for key, value in pad(rows).items() if key != name}


@pytest.mark.parametrize(
    ("collate", "error", "message"),
    [
        (list, TypeError, "returned a list; expected a mapping of tensors"),
        (without("labels"), ValueError, "no tensor 'labels', but attention_mask, input_ids; the"),
        (
            lambda rows: {**pad(rows), "labels": [0] * len(rows)},
            ValueError,
            "no tensor 'labels'",
        ),
        (lambda rows: {**pad(rows), "task": "pairs"}, ValueError, "returned task='pairs'; leave"),
        (
            lambda rows: pad(rows[1:]),
            ValueError,
            r"'labels' of shape \(3,\) for 4 rows; expected one",
        ),
        (
            lambda rows: {**pad(rows), "size": torch.tensor(4)},
            ValueError,
            r"'size' of shape \(\) for 4 rows",
        ),
    ],
)
def test_a_collator_that_breaks_the_contract_gets_a_message(make_trainer, collate, error, message):
    trainer = make_trainer(own={"tasks": one_task("moods"), "data_collator": collate})

    with pytest.raises(error, match="data_collator, for task 'moods', .*" + message):
        trainer.train()
