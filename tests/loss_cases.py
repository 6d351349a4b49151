"""Every loss of every problem type, on rows of which some labels are missing.

Run as a program it trains every case in one of two processes; see ``test_loss_terms.py``.
"""

import os
import sys
from pathlib import Path

import datasets
import numpy as np
import torch
from transformers import TrainingArguments

from modeling_minbert import MinBertForMultiTask
from tests.small_run import vary_weights
from tests.trainers.texts import Pairs
from tests.trainers.tiny import VOCABULARY, make_config
from trainers import Masking, MultiTaskTrainer, Task, TaskTraining

ROWS = 16
NONE = -100
LABELS = ["a", "b", "c"]
COSINE = {"pair_encoding": "separate", "head": "cosine"}
WEIGHTS = {"class_weights": [0.5, 2.0, 4.0]}
TEXTS = ("masked_lm", "next_sentence", "pretraining")

# by type, heads; the losses of a head that names none are all that it has
HEADS = {
    "classification": [{"labels": LABELS}, {"labels": LABELS, **WEIGHTS}],
    "multi_label_classification": [{"labels": LABELS, "pos_weight": [1.0, 3.0, 0.5]}],
    "multi_output_classification": [{"outputs": ["x", "y"], "classes": [LABELS, LABELS[:2]]}],
    "paraphrase": [{"class_weights": [1.0, 3.0]}, COSINE],
    "similarity": [{"score_range": [0, 4]}, {"score_range": [0, 4], **COSINE}],
    "regression": [{}, {"targets": ["x", "y"], "mean": [1.0, 2.0], "std": [1.0, 3.0]}],
    "contrastive": [{"num_sentences": 2}, {"num_sentences": 3}],
    "token_classification": [{"labels": LABELS, **WEIGHTS}],
    "question_answering": [{}],
    **{kind: [{}] for kind in TEXTS},
}
# Losses in which the rows of a batch are compared with each other.
COMPARING = ("multiple_negatives_ranking", "cosent")


def list_cases():
    """List name, type and head of every loss that a head of the table can have."""
    for kind, heads in HEADS.items():
        for number, head in enumerate(heads):
            if kind in TEXTS or kind in ("question_answering", "token_classification"):
                yield f"{kind}-{number}", kind, head
                continue
            plain = {name: value for name, value in head.items() if name not in WEIGHTS}
            for loss in make_config({"it": {"problem_type": kind, **plain}}).task("it").losses:
                fits = loss in ("bce", "cross_entropy")
                given = head if fits or kind != "paraphrase" else plain
                yield f"{kind}-{number}-{loss}", kind, {**given, "loss": loss}


CASES = {name: (kind, head) for name, kind, head in list_cases()}
PLAIN = [name for name, (_, head) in CASES.items() if not name.endswith(COMPARING)]


def make_model(kind, head, tasks=None):
    torch.manual_seed(0)
    more = {} if kind in TEXTS else {"dropout": 0.0}
    tasks = tasks or {"it": {"problem_type": kind, **more, **head}}
    model = MinBertForMultiTask(make_config(tasks, layers=1))
    vary_weights(model, 0.2)  # losses and gradients of some size
    return model


def make_rows(kind, head, seed=0, count=ROWS):
    """Rows of different lengths; the labels of a batch of two are all there, some, or missing."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(3, 9, size=count)
    texts = head.get("num_sentences") or (2 if head.get("pair_encoding") == "separate" else None)
    ids = [
        [generator.integers(1, VOCABULARY, size=length).tolist() for _ in range(texts or 1)]
        for length in lengths
    ]
    columns = {
        "input_ids": ids if texts else [row[0] for row in ids],
        "length": lengths.tolist(),
        "sentence": list(range(count)),
    }
    columns["token_type_ids"] = [
        [[0] * len(text) for text in row] if texts else [0] * len(row)
        for row in columns["input_ids"]
    ]
    if kind != "contrastive":
        columns["labels"] = draw_labels(kind, head, generator, lengths)
    rows = datasets.Dataset.from_dict(columns)
    if kind == "question_answering":
        rows = rows.cast_column("labels", datasets.List(datasets.Value("int64"), length=2))
    return rows


def draw_labels(kind, head, generator, lengths):
    """Draw labels; those of some rows are missing, and some of other rows with several."""
    count, values = len(lengths), generator.integers(0, 3, size=len(lengths))
    several = len(head.get("labels") or head.get("targets") or [0])
    if kind == "token_classification":
        tags = [generator.integers(0, 3, size=length) for length in lengths]
        labels = [np.where(np.arange(len(row)) % 4 == 1, NONE, row) for row in tags]
    elif kind == "question_answering":
        labels = np.stack([values % 2, 1 + values % 2], axis=1)
    elif kind == "multi_label_classification":
        labels = generator.integers(0, 2, size=(count, several)).astype(float)
    elif kind == "multi_output_classification":
        labels = np.stack([values, values % 2], axis=1)
    elif kind == "regression":
        labels = 3.0 * (values if several == 1 else np.stack([values, values[::-1]], axis=1))
    else:
        labels = {"paraphrase": values % 2, "similarity": values * 1.8 + 0.3}.get(kind, values)
    if kind in ("multi_label_classification", "multi_output_classification", "regression"):
        labels = np.where(generator.random(np.shape(labels)) < 0.3, NONE, labels)
    return [
        np.where(place in (1, 4, 6, 7, 13), NONE, row).tolist() for place, row in enumerate(labels)
    ]


def make_task(kind, head, name="it", **training):
    if kind in TEXTS:
        masking = Masking(3, (0, 1, 2, 3), (), range(5, VOCABULARY), mlm_probability=0.3)
        masking = None if kind == "next_sentence" else masking
        return Task(name, kind, Pairs(ROWS), Pairs(ROWS - 5, seed=1), masking=masking)
    rows, held_out = make_rows(kind, head), make_rows(kind, head, seed=1, count=ROWS - 5)
    if kind == "question_answering":
        held_out = None
    return Task(name, kind, rows, held_out, TaskTraining(**training))


def make_trainer(folder, name, *, methods=(), tasks=None, model=None, **arguments):
    kind, head = CASES[name]
    defaults = {"max_steps": 2, "optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0}
    defaults |= {"use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1}
    defaults |= {"lr_scheduler_type": "constant", "report_to": [], "weight_decay": 0.0}
    return MultiTaskTrainer(
        model or make_model(kind, head),
        TrainingArguments(str(folder), **(defaults | arguments)),
        tasks=tasks or [make_task(kind, head)],
        methods=list(methods),
        steps_per_epoch="longest",
    )


def logged(trainer, name="loss_it"):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def summarize(trainer):
    """Train, and return the losses, weights and the held-out loss."""
    trainer.train()
    held_out = trainer.evaluate()["eval_it_loss"] if trainer.eval_dataset else None
    weights = {key: value.clone() for key, value in trainer.model.state_dict().items()}
    return logged(trainer), weights, held_out


def main():
    folder = Path(sys.argv[1])
    options = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 3}
    found = {name: summarize(make_trainer(folder / name, name, **options)) for name in CASES}
    torch.save(found, folder / f"rank-{os.environ['RANK']}.pt")
    torch.distributed.barrier()  # destroying a gloo group while the other rank works can abort
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
