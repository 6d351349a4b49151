"""Rows that a user tokenized: padding is refused, and every container holds the same rows."""

import datasets
import numpy as np
import pytest
import torch
from torch.utils.data import Dataset
from transformers import TrainingArguments

from modeling_minbert import MinBertForMultiTask
from tests import loss_cases
from tests.small_run import make_tokenizer
from tests.trainers.tiny import make_config, make_trainer as make_tiny_trainer
from trainers import PROBLEMS, Masking, MultiTaskTrainer, Task, TaskTraining

WORDS = ["good", "bad", "film", "a", "the", "not"]
TEXTS = ["a good film", "a bad film", "the film not bad", "not good", "good", "bad the film"] * 4
TAGS = ["O", "B-X", "I-X"]
HEADS = {
    "classification": {"labels": ["ham", "spam"]},
    "paraphrase": {},
    "similarity": {"score_range": [0, 5], "pair_encoding": "separate", "head": "cosine"},
    "token_classification": {"labels": TAGS},
    "question_answering": {},
    "masked_lm": {},
}
LABELS = [0, 1, 0, 1, 0, 1] * 4
WITH_CLASSES = (
    *("classification", "paraphrase", "multi_label_classification"),
    *("multi_output_classification", "token_classification"),
)
TIMES = ("runtime", "per_second")


class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {name: torch.tensor(value) for name, value in self.rows[index].items()}


@pytest.fixture
def tokenizer():
    return make_tokenizer(WORDS)


def encode(tokenizer, kind, **padding):
    """Encode the rows of a problem type as a user would."""

    def tokenize(*texts):
        return tokenizer(*texts, **padding)

    if kind == "similarity":
        first, second = tokenize(TEXTS), tokenize(TEXTS[::-1])
        columns = {
            name: list(map(list, zip(first[name], second[name], strict=True))) for name in first
        }
    elif kind in ("paraphrase", "question_answering"):
        columns = dict(tokenize(TEXTS, TEXTS[::-1]))
    else:
        columns = dict(tokenize(TEXTS))
    if kind == "token_classification":
        columns["labels"] = [
            [-100 if token in (0, 2, 3) else token % 3 for token in ids]
            for ids in columns["input_ids"]
        ]
    elif kind == "question_answering":
        columns["labels"] = [[1, 2]] * len(TEXTS)
    elif kind != "masked_lm":
        columns["label"] = list(map(float, LABELS)) if kind == "similarity" else LABELS
    return datasets.Dataset.from_dict(columns)


def make_trainer(folder, kinds, rows):
    """Build a trainer of tasks by the kinds and the rows of their names."""
    torch.manual_seed(0)
    heads = {name: {"problem_type": kind, **HEADS[kind]} for name, kind in kinds.items()}
    model = MinBertForMultiTask(make_config(heads))
    tasks = [Task(name, kinds[name], own, own) for name, own in rows.items()]
    return make_tiny_trainer(folder, model=model, own={"tasks": tasks})


def measured(metrics):
    return {name: value for name, value in metrics.items() if not name.endswith(TIMES)}


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("is_padded", [False, True])
def test_rows_with_padding_are_refused(tokenizer, kind, is_padded):
    padding = {"padding": "max_length", "max_length": 17} if is_padded else {}
    rows = encode(tokenizer, kind, **padding)
    masking = Masking.from_tokenizer(tokenizer)
    if is_padded:
        with pytest.raises(ValueError, match=r"training set of task 'own'.* without padding"):
            Task("own", kind, rows, masking=masking)
    else:
        assert "attention_mask" not in Task("own", kind, rows, masking=masking).train.column_names


def contain(kind, rows):
    """Put rows into a container."""
    short = rows.remove_columns("token_type_ids")
    return {
        "dataset": rows,
        "without segment ids": short,
        "list": rows.to_list(),
        "torch": Rows(rows.to_list()),
        "label_ids": rows.rename_column("label", "label_ids"),
    }[kind]


@pytest.fixture
def trainer(tmp_path, tokenizer):
    rows = {"own": encode(tokenizer, "classification")}
    return make_trainer(tmp_path, {"own": "classification"}, rows)


@pytest.mark.parametrize(
    "container", ["dataset", "without segment ids", "list", "torch", "label_ids"]
)
def test_every_container_is_evaluated_and_predicted_alike(trainer, tokenizer, container):
    rows = encode(tokenizer, "classification")
    expected = measured(trainer.evaluate())

    given = contain(container, rows)

    assert expected["eval_own_accuracy"] is not None
    assert measured(trainer.evaluate({"own": given})) == expected
    assert measured(trainer.evaluate(given)) == expected
    logits = trainer.predict_task("own", trainer.tasks["own"].evaluation)
    assert (trainer.predict_task("own", given) == logits).all()
    output = trainer.predict(given)
    assert (output.predictions == logits).all()
    assert output.label_ids.tolist() == LABELS
    assert output.metrics["test_accuracy"] == expected["eval_own_accuracy"]


@pytest.mark.parametrize("given", ["dataset", "list"])
def test_rows_of_no_task_are_refused(tmp_path, tokenizer, given):
    kinds = {"spam": "classification", "same": "paraphrase"}
    rows = {name: encode(tokenizer, kind) for name, kind in kinds.items()}
    trainer = make_trainer(tmp_path, kinds, rows)
    some = contain(given, rows["spam"])

    with pytest.raises(ValueError, match=r"predict.* there are several .*predict_task"):
        trainer.predict(some)
    with pytest.raises(ValueError, match=r"evaluate.* from task to rows; known tasks: spam, same"):
        trainer.evaluate(some)


def test_rows_that_cannot_be_measured_are_refused(trainer, tokenizer):
    rows = encode(tokenizer, "classification")

    with pytest.raises(ValueError, match="set of task 'own' has no labels"):
        trainer.evaluate({"own": rows.remove_columns("label")})
    with pytest.raises(ValueError, match="row 0: the label 7 is out of range"):
        trainer.evaluate([{**row, "label": 7} for row in rows])
    with pytest.raises(ValueError, match="has no column 'input_ids'"):
        trainer.evaluate({"own": [{"text": "good", "label": 1}]})


@pytest.mark.parametrize("kind", WITH_CLASSES)
@pytest.mark.parametrize("wrong", [0.4, -1.0, 9.0])
def test_a_label_that_is_no_class_is_refused(kind, wrong):
    head = loss_cases.HEADS[kind][0]
    rows = loss_cases.make_rows(kind, head)
    labels = [np.asarray(label, float).tolist() for label in rows["labels"]]
    labels[5] = [wrong, *labels[5][1:]] if isinstance(labels[5], list) else wrong
    rows = rows.remove_columns("labels").add_column("labels", labels)
    spec = make_config({"it": {"problem_type": kind, **head}}).task("it")
    problem = PROBLEMS[kind]("it", spec)

    with pytest.raises(ValueError, match=f"rows, row 5: the label .*{wrong:g}"):
        problem.check("rows", rows)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (lambda rows: {"train": rows}, TypeError, "is a dict; give a datasets.Dataset"),
        (lambda _: 7, TypeError, "task 'own' is a int; give a datasets.Dataset"),
        (lambda _: "abc", TypeError, "task 'own' is a str; give a datasets.Dataset"),
        (iter, TypeError, r"task 'own' is a generator; .* list\(rows\) reads what"),
        (lambda rows: rows.to_iterable_dataset(), TypeError, r"is a IterableDataset; .* list\("),
        (lambda _: [{"input_ids": [1]}, None], TypeError, r"row 1 is a NoneType; expected col"),
        (lambda _: [], ValueError, "the training set of task 'own' is empty"),
        (
            lambda rows: rows.with_transform(lambda batch: batch),
            ValueError,
            "task 'own' has a transform; compute its columns with map instead",
        ),
        (
            lambda rows: [*rows.to_list(), {**rows[0], "input_ids": "text"}],
            ValueError,
            "task 'own': a column has values of several types",
        ),
        (
            lambda rows: rows.cast_column("label", datasets.Value("string")),
            ValueError,
            "task 'own': labels are of string, or missing; expected numbers",
        ),
        (
            lambda rows: [*rows.to_list(), {"input_ids": [2, 3]}],
            ValueError,
            "row 24 has the columns input_ids, but those before have",
        ),
    ],
)
def test_rows_that_cannot_be_read_are_refused(tokenizer, rows, error, message):
    with pytest.raises(error, match=message):
        Task("own", "classification", rows(encode(tokenizer, "classification")))


def test_what_a_task_lacks_is_named(tokenizer):
    rows = encode(tokenizer, "masked_lm")

    with pytest.raises(ValueError, match="predicts masked tokens: give masking="):
        Task("own", "masked_lm", rows)
    with pytest.raises(ValueError, match="did you mean 'accuracy'"):
        Task("own", "classification", rows, metrics=["acuracy"])
    with pytest.raises(TypeError, match=r"task 'own': training={'batch_size': 2}; give a TaskTr"):
        Task("own", "classification", rows, training={"batch_size": 2})
    with pytest.raises(ValueError, match="loss_weight=nan; expected a number > 0"):
        TaskTraining(loss_weight=float("nan"))


@pytest.mark.parametrize(("limit", "kept"), [(8, 8), (30, None)])
def test_the_length_at_which_a_tokenizer_cut_the_rows_is_kept(tmp_path, tokenizer, limit, kept):
    texts = ["a good film and the bad film and not a good film", "good"]
    rows = dict(tokenizer(texts, truncation=True, max_length=limit)) | {"labels": [0, 1]}
    del rows["attention_mask"]
    task = Task("own", "classification", datasets.Dataset.from_dict(rows))
    head = {"problem_type": "classification", **HEADS["classification"]}
    model = MinBertForMultiTask(make_config({"own": head}))
    args = TrainingArguments(str(tmp_path), use_cpu=True, report_to=[])

    MultiTaskTrainer(model, args, [task], processing_class=tokenizer)

    assert model.config.task("own").max_length == kept
