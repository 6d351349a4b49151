"""Tasks from rows that a user has tokenized himself."""

import datasets
import pytest
import torch
from transformers import BertTokenizer, TrainingArguments

from modeling_minbert import MinBertForMultiTask
from tests.trainers.tiny import make_config
from trainers import Masking, MultiTaskTrainer, RDrop, Task, TaskSampling, TaskTraining

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
    trainer = make_trainer(tmp_path, [Task("spam", "classification", spam, spam)])
    before = trainer.evaluate()

    trainer.train()

    after = trainer.evaluate()
    assert after["eval_spam_loss"] < 0.9 * before["eval_spam_loss"]
    assert after["eval_mean"] == after["eval_spam_accuracy"] > 0.6
    assert trainer.predict_task("spam", spam).shape == (24, 2)


def test_two_tasks_train_with_a_method_and_a_sampling(tmp_path, spam, same):
    tasks = [
        Task("spam", "classification", spam, spam, metrics=["macro_f1"]),
        Task("same", "paraphrase", same, same, TaskTraining(batch_size=4, loss_weight=2.0)),
    ]
    trainer = make_trainer(
        tmp_path, tasks, methods=[RDrop(alpha=0.5)], sampling=TaskSampling("proportional")
    )

    trainer.train()

    logged = set().union(*trainer.state.log_history)
    assert {"loss_spam", "loss_same", "rdrop_divergence_spam", "rdrop_divergence_same"} <= logged
    assert [trainer.train_sampler.count_batch_rows(task)[0] for task in ("spam", "same")] == [8, 4]
    found = trainer.evaluate()
    expected = (found["eval_spam_macro_f1"] + found["eval_same_accuracy"]) / 2
    assert found["eval_mean"] == pytest.approx(expected)


def test_masks_are_drawn_for_rows_of_a_user(tmp_path, tokenizer, spam):
    rows = spam.remove_columns("label")
    masking = Masking.from_tokenizer(tokenizer)
    text = Task("text", "masked_lm", rows, rows, masking=masking)
    task = Task("spam", "classification", spam, spam)
    model = MinBertForMultiTask(make_config(HEADS | {"text": {"problem_type": "masked_lm"}}))
    args = TrainingArguments(str(tmp_path), use_cpu=True, max_steps=2, save_strategy="no")

    trainer = MultiTaskTrainer(model, args, tasks=[task, text])
    trainer.train()

    assert "eval_text_perplexity" in trainer.evaluate()


def test_a_column_label_is_used(spam):
    assert "labels" in Task("spam", "classification", spam).train.column_names
    both = spam.add_column("labels", [0] * 24)
    assert Task("spam", "classification", both).train["label"] == spam["label"]


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
        Task("spam", kind, change(spam) if change else spam)


class Torch(torch.utils.data.Dataset):
    """Rows of a user in a torch dataset, as tensors."""

    def __init__(self, rows):
        self.rows = rows.select_columns(["input_ids", "labels"])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {name: torch.tensor(value) for name, value in self.rows[index].items()}


class Stream(torch.utils.data.IterableDataset):
    """Rows of a user in a torch dataset that can only be iterated over."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __iter__(self):
        yield from Torch(self.rows)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (lambda rows: datasets.DatasetDict(train=rows), TypeError, "is a DatasetDict of train"),
        (lambda rows: {"train": rows}, TypeError, "is a dict of train; give one of them"),
        (
            lambda rows: datasets.IterableDatasetDict(train=rows.to_iterable_dataset()),
            TypeError,
            "is a IterableDatasetDict of train; give one of them",
        ),
        (lambda _: 7, TypeError, "task 'spam' is a int; give a datasets.Dataset"),
        (lambda _: "abc", TypeError, "task 'spam' is a str; give a datasets.Dataset"),
        (iter, TypeError, r"task 'spam' is a generator; .* list\(rows\) reads what"),
        (lambda rows: rows.to_iterable_dataset(), TypeError, r"is a IterableDataset; .* list\("),
        (Stream, TypeError, r"is a Stream; .* list\(rows\) reads"),
        (lambda _: [[1, 2]], TypeError, r"row 0 is a list; expected columns such as"),
        (lambda _: [{"input_ids": [1]}, None], TypeError, r"row 1 is a NoneType; expected col"),
        (lambda _: [], ValueError, "the training set of task 'spam' is empty"),
        (
            lambda rows: rows.with_transform(lambda batch: batch),
            ValueError,
            "task 'spam' has a transform; compute its columns with map instead",
        ),
        (
            lambda rows: [*rows.to_list(), {**rows[0], "input_ids": "text"}],
            ValueError,
            "task 'spam': a column has values of several types",
        ),
        (
            lambda rows: rows.cast_column("label", datasets.Value("string")),
            ValueError,
            "task 'spam': labels are of string, or missing; expected numbers",
        ),
    ],
)
def test_rows_that_cannot_be_read_are_refused(spam, rows, error, message):
    with pytest.raises(error, match=message):
        Task("spam", "classification", rows(spam))


def test_no_label_is_cut_to_the_type_of_earlier_ones(spam):
    ids = spam[0]["input_ids"]
    rows = [{"input_ids": ids, "labels": 3}] * 3 + [{"input_ids": ids, "labels": 3.7}]

    task = Task("scores", "similarity", rows)

    assert task.train["labels"][-1] == 3.7
    with pytest.raises(ValueError, match="a column has values of several types"):
        Task("scores", "similarity", [{"input_ids": ids, "labels": True}, *rows])


def test_all_rows_have_the_same_columns(spam):
    ids = spam[0]["input_ids"]
    rows = [{"input_ids": ids, "labels": 1}] * 3

    with pytest.raises(ValueError, match="row 3 has the columns input_ids, but those before have"):
        Task("spam", "classification", [*rows, {"input_ids": ids}])
    more = {"input_ids": ids, "labels": 1, "token_type_ids": [0] * len(ids)}
    with pytest.raises(ValueError, match="row 3 has the columns input_ids, labels, token_type_ids"):
        Task("spam", "classification", [*rows, more])
