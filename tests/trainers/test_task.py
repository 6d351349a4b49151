"""Tasks from rows that a user has tokenized himself."""

import datasets
import numpy as np
import pytest
import torch
from transformers import BertTokenizer, TrainingArguments

from modeling_minbert import MinBertForMultiTask
from tests.trainers.tiny import make_config, weights
from trainers import Masking, MultiTaskTrainer, Proportional, RDrop, Task

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "a", "the", "not"]
TEXTS = ["a good film", "a bad film", "the film not bad", "not good", "good", "bad the film"] * 4
HEADS = {
    "spam": {"problem_type": "classification", "labels": ["ham", "spam"]},
    "same": {"problem_type": "paraphrase"},
}


@pytest.fixture
def tokenizer():
    return BertTokenizer(vocab={word: index for index, word in enumerate(WORDS)})


@pytest.fixture
def spam(tokenizer):
    """Rows as most users have them: texts, labels and the tokenizer's columns."""
    rows = datasets.Dataset.from_dict({"text": TEXTS, "label": [0, 1, 0, 1, 0, 1] * 4})
    return rows.map(lambda row: tokenizer(row["text"]))


@pytest.fixture
def same(tokenizer):
    """Pairs in one sequence, with whole numbers as labels."""
    columns = {"first": TEXTS, "second": TEXTS[::-1], "labels": [0, 1] * 12}
    rows = datasets.Dataset.from_dict(columns)
    return rows.map(lambda batch: tokenizer(batch["first"], batch["second"]), batched=True)


def make_trainer(folder, tasks, **options):
    torch.manual_seed(0)
    heads = {task.name: HEADS[task.name] for task in tasks}
    args = TrainingArguments(
        str(folder), use_cpu=True, disable_tqdm=True, save_strategy="no", learning_rate=0.03,
        per_device_train_batch_size=8, logging_steps=9, num_train_epochs=20,
    )  # fmt: skip
    return MultiTaskTrainer(MinBertForMultiTask(make_config(heads)), args, tasks=tasks, **options)


def test_rows_of_a_user_train_and_are_measured(tmp_path, spam):
    trainer = make_trainer(tmp_path, [Task.from_dataset("spam", "classification", spam, spam)])
    before = trainer.evaluate()

    trainer.train()

    after = trainer.evaluate()
    assert after["eval_spam_loss"] < 0.9 * before["eval_spam_loss"]
    assert after["eval_mean"] == after["eval_spam_accuracy"] > 0.6
    assert trainer.predict_task("spam", spam).shape == (24, 2)


def test_two_tasks_train_with_a_method_and_a_sampling(tmp_path, spam, same):
    tasks = [
        Task.from_dataset("spam", "classification", spam, spam, metrics=["macro_f1"]),
        Task.from_dataset("same", "paraphrase", same, same, batch_size=4, loss_weight=2.0),
    ]
    trainer = make_trainer(tmp_path, tasks, methods=[RDrop(alpha=0.5)], sampling=Proportional())

    trainer.train()

    logged = set().union(*trainer.state.log_history)
    assert {"loss_spam", "loss_same", "rdrop_divergence_spam", "rdrop_divergence_same"} <= logged
    assert trainer.train_sampler.batch_sizes == {"spam": 8, "same": 4}
    found = trainer.evaluate()
    expected = (found["eval_spam_macro_f1"] + found["eval_same_accuracy"]) / 2
    assert found["eval_mean"] == pytest.approx(expected)


def test_masks_are_drawn_for_rows_of_a_user(tmp_path, tokenizer, spam):
    rows = spam.remove_columns("label")
    masking = Masking.from_tokenizer(tokenizer)
    text = Task.from_dataset("text", "masked_lm", rows, rows, masking=masking)
    task = Task.from_dataset("spam", "classification", spam, spam)
    model = MinBertForMultiTask(make_config(HEADS | {"text": {"problem_type": "masked_lm"}}))
    args = TrainingArguments(str(tmp_path), use_cpu=True, max_steps=2, save_strategy="no")

    trainer = MultiTaskTrainer(model, args, tasks=[task, text])
    trainer.train()

    assert "eval_text_perplexity" in trainer.evaluate()


def test_a_column_label_is_used(spam):
    assert "labels" in Task.from_dataset("spam", "classification", spam).train.column_names
    both = spam.add_column("labels", [0] * 24)
    assert Task.from_dataset("spam", "classification", both).train["label"] == spam["label"]


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        (
            "clasification",
            None,
            "'spam': unknown problem_type 'clasification'; did you mean 'classifica",
        ),
        (
            "classification",
            lambda rows: rows.remove_columns("input_ids"),
            "training set of task 'spam' has no column 'input_ids', but text, label",
        ),
        ("masked_lm", None, "predicts masked tokens: give masking="),
    ],
)
def test_what_a_task_cannot_use_is_refused(spam, kind, change, message):
    with pytest.raises(ValueError, match=message):
        Task.from_dataset("spam", kind, change(spam) if change else spam)


def test_an_unknown_metric_is_refused_at_once(spam):
    with pytest.raises(ValueError, match="did you mean 'accuracy'"):
        Task.from_dataset("spam", "classification", spam, metrics=["acuracy"])


class Torch(torch.utils.data.Dataset):
    """Rows of a user in a torch dataset, as tensors."""

    def __init__(self, rows):
        self.rows = rows.select_columns(["input_ids", "labels"])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {name: torch.tensor(value) for name, value in self.rows[index].items()}


@pytest.mark.parametrize(
    "convert",
    [
        lambda rows: rows.remove_columns("token_type_ids"),
        lambda rows: rows.to_list(),
        lambda rows: Torch(rows.rename_column("label", "labels")),
        lambda rows: [dict(row) for row in rows.remove_columns("token_type_ids")],
    ],
    ids=["without segment ids", "list", "torch", "list without segment ids"],
)
def test_rows_of_other_kinds_are_the_same_rows(spam, convert):
    expected = Task.from_dataset("spam", "classification", spam).train

    rows = Task.from_dataset("spam", "classification", convert(spam)).train

    for name in ("input_ids", "token_type_ids", "labels"):
        assert rows[name] == expected[name]


class Stream(torch.utils.data.IterableDataset):
    """Rows of a user in a torch dataset without a length."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        yield from Torch(self.rows)


class SizedStream(Stream):
    """A stream that tells its length, as torch allows."""

    def __len__(self):
        return len(self.rows)


STREAMS = {
    "datasets": lambda rows: rows.to_iterable_dataset(),
    "generator": iter,
    "torch": lambda rows: Stream(rows.rename_column("label", "labels")),
    "torch with a length": lambda rows: SizedStream(rows.rename_column("label", "labels")),
}


@pytest.mark.parametrize("convert", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("chunk", [7, 10_000])
def test_the_rows_of_a_stream_are_read_once(monkeypatch, spam, convert, chunk):
    monkeypatch.setattr("trainers.data.given_rows.CHUNK", chunk)
    expected = Task.from_dataset("spam", "classification", spam, spam)

    task = Task.from_dataset("spam", "classification", convert(spam), convert(spam))

    for rows, same_rows in ((task.train, expected.train), (task.evaluation, expected.evaluation)):
        for name in ("input_ids", "token_type_ids", "labels"):
            assert rows[name] == same_rows[name]


def test_a_run_on_a_stream_equals_one_on_its_rows(tmp_path, spam):
    found = []
    for rows in (spam, spam.to_iterable_dataset()):
        trainer = make_trainer(tmp_path, [Task.from_dataset("spam", "classification", rows, rows)])
        trainer.train()
        found.append((weights(trainer), trainer.evaluate()["eval_spam_loss"]))

    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)


def test_a_first_part_of_an_endless_stream_is_read(spam):
    def endless():
        while True:
            yield from spam

    task = Task.from_dataset(
        "spam", "classification", endless(), endless(), max_train_samples=30, max_eval_samples=5
    )

    assert task.train["input_ids"] == (spam["input_ids"][:] + spam["input_ids"][:])[:30]
    assert task.evaluation["input_ids"] == spam["input_ids"][:5]


@pytest.mark.parametrize("convert", [lambda rows: rows, lambda rows: rows.to_list(), Torch])
def test_the_bound_also_holds_for_rows_with_a_length(spam, convert):
    rows = spam.rename_column("label", "labels")

    assert (
        len(Task.from_dataset("a", "classification", convert(rows), max_train_samples=5).train) == 5
    )
    assert (
        len(Task.from_dataset("a", "classification", convert(rows), max_train_samples=99).train)
        == 24
    )


def test_an_endless_stream_without_a_bound_is_refused(monkeypatch, spam):
    monkeypatch.setattr("trainers.data.given_rows.MOST_ROWS", 50)

    def endless():
        while True:
            yield from spam

    message = "training set of task 'spam' has more than 50 rows.*give max_train_samples"
    with pytest.raises(ValueError, match=message):
        Task.from_dataset("spam", "classification", endless())


@pytest.mark.parametrize(
    ("rows", "options", "error", "message"),
    [
        (lambda rows: datasets.DatasetDict(train=rows), {}, TypeError, "is a DatasetDict of train"),
        (lambda rows: {"train": rows}, {}, TypeError, "is a dict of train; give one of them"),
        (
            lambda rows: datasets.IterableDatasetDict(train=rows.to_iterable_dataset()),
            {},
            TypeError,
            "is a IterableDatasetDict of train; give one of them",
        ),
        (lambda _: 7, {}, TypeError, "task 'spam' is a int; give a datasets.Dataset"),
        (lambda _: "abc", {}, TypeError, "task 'spam' is a str; give a datasets.Dataset"),
        (lambda _: iter([[1, 2]]), {}, TypeError, r"row 0 is a list; expected columns such as"),
        (lambda _: [{"input_ids": [1]}, None], {}, TypeError, r"row 1 is a NoneType; expected col"),
        (lambda _: iter([]), {}, ValueError, "the training set of task 'spam' is empty"),
        (lambda _: [], {}, ValueError, "the training set of task 'spam' is empty"),
        (
            lambda rows: rows,
            {"max_train_samples": 0},
            ValueError,
            "max_train_samples=0; expected a whole",
        ),
        (iter, {"max_train_samples": 2.5}, ValueError, "max_train_samples=2.5; expected a whole"),
    ],
)
def test_rows_that_cannot_be_read_are_refused(spam, rows, options, error, message):
    with pytest.raises(error, match=message):
        Task.from_dataset("spam", "classification", rows(spam), **options)


def test_rows_of_a_stream_must_have_one_type(monkeypatch, spam):
    monkeypatch.setattr("trainers.data.given_rows.CHUNK", 2)
    rows = [*spam.select_columns(["input_ids", "label"]).to_list()[:4]]
    rows.append({"input_ids": "text", "label": 0})

    message = r"training set of task 'spam', rows 4 to 4: .* other types"
    with pytest.raises(ValueError, match=message):
        Task.from_dataset("spam", "classification", iter(rows))


def test_no_label_is_cut_to_the_type_of_earlier_ones(spam):
    ids = spam[0]["input_ids"]
    rows = [{"input_ids": ids, "labels": 3}] * 10_001 + [{"input_ids": ids, "labels": 3.7}]

    task = Task.from_dataset("scores", "similarity", rows)

    assert task.train["labels"][-1] == 3.7
    mixed = [{"input_ids": ids, "labels": True}] * 10_000 + rows[:2]
    with pytest.raises(ValueError, match="rows 10000 to 10001: columns have other types"):
        Task.from_dataset("scores", "similarity", mixed)


def test_all_rows_have_the_same_columns(spam):
    ids = spam[0]["input_ids"]
    rows = [{"input_ids": ids, "labels": 1}] * 3

    with pytest.raises(ValueError, match="row 3 has the columns input_ids, but those before have"):
        Task.from_dataset("spam", "classification", [*rows, {"input_ids": ids}])
    more = {"input_ids": ids, "labels": 1, "token_type_ids": [0] * len(ids)}
    with pytest.raises(ValueError, match="row 3 has the columns input_ids, labels, token_type_ids"):
        Task.from_dataset("spam", "classification", [*rows, more])


def test_predict_and_evaluate_take_the_rows_of_the_only_task(tmp_path, spam):
    task = Task.from_dataset("spam", "classification", spam, spam)
    trainer = make_trainer(tmp_path, [task])

    output = trainer.predict(task.train)

    np.testing.assert_allclose(output.predictions, trainer.predict_task("spam", spam), atol=1e-6)
    assert output.label_ids.tolist() == task.train["labels"]
    assert output.metrics["test_accuracy"] == trainer.evaluate()["eval_spam_accuracy"]
    assert trainer.evaluate(task.train).keys() >= {"eval_spam_accuracy", "eval_mean"}
