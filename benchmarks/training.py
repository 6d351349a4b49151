"""Training: the same weights, batches, optimizer and schedule for all contenders.

Optimizer: fused AdamW, 2e-5, linear decay to zero, clipping at 1, no weight decay for biases and
norms. A contender may arrange the tokens of a batch freely.
"""

import json
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Protocol

import datasets
import numpy as np
import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    BertForSequenceClassification,
    BertTokenizer,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    get_linear_schedule_with_warmup,
)
from transformers.utils.generic import ModelOutput

from modeling_minbert import MinBertForMaskedLM, MinBertForMultiTask
from modeling_minbert.families import list_renames
from trainers import FastTrainingArguments, MultiTaskTrainer, Task, TaskCollator
from trainers.data.rows import Joined

from .block import Job, Meter
from .flops import count_flops, measure_products
from .workloads import TASKS, Rows, Task as Plan, find_tasks

LEARNING_RATE, WEIGHT_DECAY, CLIP, DROPOUT, CLASSES = 2e-5, 0.01, 1.0, 0.1, 5
TEXT = "mlm"  # name of the task of masked language models


class Work:
    """The batches of a job.

    Args:
        job: The job.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.tasks: dict[str, Plan] = {name: TASKS[name] for name in find_tasks(job.workload)}
        self.is_mlm = any(task.kind == "mlm" for task in self.tasks.values())
        self.dropout = 0.0 if job.is_check else DROPOUT
        self.steps = job.warmup + job.units

    @cached_property
    def shape(self) -> dict[str, Any]:
        """Configuration of the encoder."""
        file = self.job.model_dir / "config.json"
        shape: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return shape

    @cached_property
    def data(self) -> dict[str, Rows]:
        """The rows of each task."""
        return {name: Rows.load(self.job.folder / f"{name}.npz") for name in self.tasks}

    def batch(self, step: int) -> tuple[str, list[int]]:
        """Return the task and the rows of a step."""
        names = [*self.tasks]
        turn, index = divmod(self.job.first + step, len(names))
        batches = self.data[names[index]].batches
        return names[index], batches[turn % len(batches)][: self.job.rows].tolist()

    def lengths(self, step: int) -> np.ndarray[Any, Any]:
        """Return the tokens of the sequences of a step."""
        task, rows = self.batch(step)
        return self.data[task].lengths[rows].ravel()

    def count(self, step: int) -> dict[str, int]:
        """Count real tokens, sequences and masked tokens of a step, from the files alone."""
        task, rows = self.batch(step)
        data, masked = self.data[task], 0
        if self.is_mlm:
            masked = sum(label >= 0 for row in rows for label in data.sequence(data.labels, row))
        lengths = self.lengths(step)
        return {"tokens": int(lengths.sum()), "sequences": len(lengths), "masked": masked}

    def number_batches(self, starts: Mapping[str, int]) -> list[list[int]]:
        """Return the rows of all steps, numbered over all tasks from their ``starts``."""
        steps = map(self.batch, range(self.steps))
        return [[starts[task] + row for row in rows] for task, rows in steps]

    @property
    def dropout_options(self) -> dict[str, Any]:
        """Fields of a configuration; a ModernBERT has no dropout."""
        names = ("hidden_dropout_prob", "attention_probs_dropout_prob")
        return dict.fromkeys(
            () if self.shape["model_type"] == "modernbert" else names, self.dropout
        )


class Probe:
    """Hooks that a contender calls in every step; these do nothing."""

    def on_batch(self, inputs: Mapping[str, Any]) -> None:
        """Receive the inputs of the model."""

    def on_loss(self, loss: Tensor) -> None:
        """Receive the loss."""

    def on_gradients(self) -> None:
        """Called after clipping, before the optimizer."""

    def on_step(self) -> None:
        """Called at the end of a step."""


class Peer(Protocol):
    """A way to train a model on the batches of a job."""

    def train(self, probe: Probe) -> None:
        """Run all steps of the job."""

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters by their names in BERT's classes for one sequence."""


class StepTimer(Probe):
    """Ends a unit of the meter with every step."""

    def __init__(self, meter: Meter, work: Work) -> None:
        self.meter, self.work = meter, work

    def on_step(self) -> None:
        """Count the real tokens of the step."""
        step = len(self.meter.items)
        self.meter.unit(int(self.work.lengths(step).sum()))


class Recorder(Probe):
    """Records what the check compares: losses, first gradients, last weights, and counts."""

    def __init__(self, peer: Peer, work: Work) -> None:
        self.peer, self.work = peer, work
        self.losses: list[float] = []
        self.gradients: dict[str, Tensor] = {}
        self.surplus = Counter[str]()

    def on_batch(self, inputs: Mapping[str, Any]) -> None:
        """Count what the batch has more than the files."""
        self.surplus.update(count_batch(inputs))
        self.surplus.subtract(self.work.count(len(self.losses)))

    def on_loss(self, loss: Tensor) -> None:
        """Record the loss."""
        self.losses.append(float(loss.detach()))

    def on_gradients(self) -> None:
        """Record the gradients of the first step."""
        if not self.gradients:
            self.gradients = {
                name: parameter.grad.detach().float().cpu().clone()
                for name, parameter in self.peer.parameters().items()
                if parameter.grad is not None
            }

    def outputs(self) -> dict[str, Any]:
        """Return the arrays of the check."""
        outputs: dict[str, Any] = {"losses": self.losses}
        outputs |= {f"gradient {name}": value for name, value in self.gradients.items()}
        outputs |= {f"weight {name}": value for name, value in self.peer.parameters().items()}
        return outputs | {f"surplus {name}": count for name, count in self.surplus.items()}


def count_batch(inputs: Mapping[str, Any]) -> dict[str, int]:
    """Count the real tokens, sequences and masked tokens of a padded or packed batch."""
    counts = {"tokens": 0, "sequences": 0, "masked": 0}
    for name, value in inputs.items():
        if isinstance(value, Mapping):  # a side of a pair
            counts = {key: counts[key] + more for key, more in count_batch(value).items()}
        elif name.endswith("attention_mask"):
            counts["tokens"] += int(value.sum())
            counts["sequences"] += value.shape[:-1].numel()
        elif name == "cu_seq_lens_q":
            sequences = len(value) - 1
            counts["tokens"] += int(value[sequences])
            counts["sequences"] += sequences
        elif name == "labels" and value.dim() == 2:
            counts["masked"] += int((value >= 0).sum())
    return counts


def run(job: Job, meter: Meter, kind: Any) -> dict[str, Any]:
    """Train a contender, and measure its steps or record them for the check."""
    work = Work(job)
    peer: Peer = kind(work)
    if job.is_check:
        recorder = Recorder(peer, work)
        peer.train(recorder)
        return recorder.outputs()
    meter.ready()
    peer.train(StepTimer(meter, work))
    steps = range(job.warmup, work.steps)
    shape = work.shape
    counts = [work.count(step) for step in steps]
    meter.extra["flops"] = sum(
        3 * count_flops(work.lengths(step), shape, count["masked"])
        for step, count in zip(steps, counts, strict=True)
    )
    tokens = round(sum(count["tokens"] for count in counts) / len(steps))
    meter.extra["products"] = measure_products(
        shape, tokens, job.dtype, job.device, backward=True, seconds=job.seconds
    )
    return {}


# part of a step -> beginnings of the names of operators; the innermost that is listed counts,
# except that all within attention, the optimizer and the loader is theirs
WHOLE_PARTS = {
    "attention": ("_BucketAttention", "aten::scaled_dot_product_attention", "ScaledDotProduct"),
    "optimizer": ("Optimizer.step",),
    "data": ("enumerate(DataLoader)",),
}
PARTS = {
    "matrix products": ("aten::addmm", "aten::mm", "aten::linear", "_Linear"),
    "clipping": ("aten::_foreach_norm", "aten::_foreach_mul", "aten::linalg_vector_norm"),
    "casts": ("aten::to", "aten::_to_copy", "ToCopyBackward0", "aten::_foreach_copy"),
    "dropout, residual, norm": (
        "_Dropout", "_AddNorm", "aten::layer_norm", "aten::native_layer", "NativeLayerNorm",
        "aten::dropout", "aten::native_dropout", "NativeDropout", "aten::bernoulli_",
    ),
    "GELU": ("aten::gelu", "GeluBackward0", "_Gelu"),
    "embedding": ("_Lookup", "aten::embedding", "Embedding"),
    "loss": ("aten::cross_entropy", "aten::nll_loss", "aten::log_softmax", "NllLoss", "LogSoftmax"),
    "sums of gradients": ("aten::sum", "torch::autograd::Acc"),
    "residual": ("aten::add", "AddBackward0"),
}  # fmt: skip


def profile(job: Job, meter: Meter, kind: Any) -> dict[str, Any]:
    """Train under torch's profiler; ``extra`` gets the share of each part of a step."""
    work = Work(job)
    peer: Peer = kind(work)
    recorder = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])

    class Window(StepTimer):
        def on_step(self) -> None:
            super().on_step()
            if len(meter.items) == job.warmup:
                recorder.start()
            elif len(meter.items) == work.steps:
                recorder.stop()

    meter.ready()
    peer.train(Window(meter, work))
    wall = 1e6 * meter.result(job.warmup)["seconds"]
    spent = defaultdict[str, float](float)
    events: Any = recorder.events()
    for event in events:
        spent[_find_part(event)] += event.self_cpu_time_total / wall
    # of the other threads, too, so the sum may be above 1
    spent["Python"] = max(0.0, 1 - sum(spent.values()))
    meter.extra["shares"] = dict(spent)
    return {}


def _find_part(event: Any) -> str:
    names = []
    while event is not None:
        names.append(event.name.removeprefix("autograd::engine::evaluate_function: "))
        event = event.cpu_parent
    for part, starts in WHOLE_PARTS.items():
        if any(name.startswith(starts) for name in names):
            return part
    for name in names:
        for part, starts in PARTS.items():
            if name.startswith(starts):
                return part
    return "rest"


def set_classifier(layer: nn.Linear) -> None:
    """Initialize a new classifier with the same weights in every contender."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator) * 0.02)
        layer.bias.zero_()


def scale_labels(kind: str, labels: Tensor) -> Tensor:
    """Scale similarity scores to [0, 1], the target of the cosine."""
    return labels / 5 if kind == "similarity" else labels


def make_datasets(work: Work, *, columns: bool) -> dict[str, datasets.Dataset]:
    """Create a dataset of tokens for each task: input_ids, token_type_ids and labels.

    Args:
        work: The work.
        columns: Whether the sequences of a pair are two columns, ``_a`` and ``_b``, instead of
            lists of two.
    """
    return {name: _make_dataset(work, name, columns=columns) for name in work.tasks}


def _make_dataset(work: Work, name: str, *, columns: bool) -> datasets.Dataset:
    rows, task = work.data[name], work.tasks[name]
    count = len(rows.starts) - 1
    features: dict[str, list[Any]] = {}
    for name, values in (("input_ids", rows.ids), ("token_type_ids", rows.segments)):
        sequences = [rows.sequence(values, index) for index in range(count)]
        if rows.per_row == 1:
            features[name] = sequences
        elif columns:
            features[f"{name}_a"], features[f"{name}_b"] = sequences[::2], sequences[1::2]
        else:
            features[name] = [list(p) for p in zip(sequences[::2], sequences[1::2], strict=True)]
    features["labels"] = rows.labels.tolist()
    if task.kind == "mlm":
        features["labels"] = [rows.sequence(rows.labels, index) for index in range(count)]
    return datasets.Dataset.from_dict(features)


class JoinedRows(Dataset[dict[str, Any]]):
    """Datasets of several tasks one after the other; rows name their task if there are several."""

    def __init__(self, work: Work) -> None:
        self.parts = make_datasets(work, columns=True)
        self.starts = find_starts(self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts.values()))

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        name = max(
            (name for name, start in self.starts.items() if start <= indices[0]),
            key=self.starts.__getitem__,
        )
        rows = self.parts[name][[index - self.starts[name] for index in indices]]
        extra = {"task": name} if len(self.parts) > 1 else {}
        return [
            extra | dict(zip(rows, values, strict=True))
            for values in zip(*rows.values(), strict=True)
        ]


def find_starts(parts: Mapping[str, datasets.Dataset]) -> dict[str, int]:
    """Return the number of rows before each part."""
    return dict(zip(parts, accumulate(map(len, parts.values()), initial=0), strict=False))


class TransformersCollator:
    """transformers' own padding: single rows as they are, pairs as ``first`` and ``second``.

    Args:
        work: The work.
    """

    def __init__(self, work: Work) -> None:
        tokenizer = BertTokenizer.from_pretrained(work.job.model_dir)
        kind: Any = DataCollatorForTokenClassification if work.is_mlm else DataCollatorWithPadding
        self.collate: Any = kind(tokenizer)
        known = tokenizer.model_input_names
        self.unknown = {"task", *(() if "token_type_ids" in known else ("token_type_ids",))}

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Pad a batch."""
        task = {"task": rows[0]["task"]} if "task" in rows[0] else {}
        rows = [{key: row[key] for key in row if key not in self.unknown} for row in rows]
        if "input_ids" in rows[0]:
            return task | dict(self.collate(rows))
        sides = {}
        for name, suffix in (("first", "_a"), ("second", "_b")):
            side = [
                {key.removesuffix(suffix): row[key] for key in row if key.endswith(suffix)}
                for row in rows
            ]
            sides[name] = dict(self.collate(side))
        return task | {"labels": torch.tensor([row["labels"] for row in rows]), **sides}


class ProbeCallback(TrainerCallback):
    """Forwards the events of a Trainer to a probe."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Forward the event."""
        self.probe.on_gradients()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Forward the event."""
        self.probe.on_step()


def fix_batches(kind: Any) -> Any:
    """Make a class of Trainer that runs given batches in their order, loaded as it does."""

    class Fixed(kind):  # type: ignore[misc]
        def watch(self, batches: list[list[int]], probe: Probe) -> None:
            self.fixed_batches, self.probe = batches, probe
            self.remove_callback(PrinterCallback)
            self.add_callback(ProbeCallback(probe))

        def get_train_dataloader(self) -> Any:
            loader = DataLoader(
                self.train_dataset,
                batch_sampler=self.fixed_batches,
                collate_fn=self.data_collator,
                pin_memory=torch.cuda.is_available(),
            )
            return self.accelerator.prepare(loader)

        def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any) -> Tensor:
            self.probe.on_batch(inputs)
            loss: Tensor = super().training_step(model, inputs, *args)
            self.probe.on_loss(loss)
            return loss

    return Fixed


def make_arguments(work: Work, kind: Any = TrainingArguments, **more: Any) -> Any:
    """Create the arguments of a Trainer: its defaults, but for those of the job."""
    job = work.job
    options: dict[str, Any] = {
        "output_dir": tempfile.gettempdir(),
        "max_steps": work.steps,
        "learning_rate": LEARNING_RATE,
        "weight_decay": WEIGHT_DECAY,
        "max_grad_norm": CLIP,
        "per_device_train_batch_size": max(task.rows for task in work.tasks.values()),
        "use_cpu": job.device == "cpu",
        "bf16": job.name.precision == "bfloat16",
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    return kind(**options | more)


class WithTrainer:
    """A contender whose steps are those of a Trainer."""

    model: Any
    trainer: Any
    batches: list[list[int]]

    def train(self, probe: Probe) -> None:
        """Run all steps of the job."""
        self.trainer.watch(self.batches, probe)
        self.trainer.train()

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters by their names in BERT's classes for one sequence."""
        return name_parameters(self.model)


def name_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters of a model of any type by their names in BERT's classes."""
    named, renames = {}, list_renames()
    for name, parameter in model.named_parameters():
        for theirs, ours in renames.items():
            name = re.sub(theirs, ours, name)  # noqa: PLW2901
        # some types define the output layer, which is tied, before the embeddings
        is_tied = name == "cls.predictions.decoder.weight"
        named["bert.embeddings.word_embeddings.weight" if is_tied else name] = parameter
    return named


class MinBertPeer(WithTrainer):
    """minBERT as a user runs it: ``MultiTaskTrainer``, for masked language models the Trainer.

    As ``minbert padded`` its batches are padded and the attention is the plain one, as ``minbert
    dense`` it scores the whole vocabulary at every token, as transformers does, and as ``minbert
    compiled`` torch compiles it.
    """

    def __init__(self, work: Work) -> None:
        self.work = work
        padded, dense = (work.job.name.peer == f"minbert {way}" for way in ("padded", "dense"))
        options = {**work.dropout_options, "attn_implementation": "eager" if padded else "sdpa"}
        options["sparse_prediction"] = not dense
        if work.is_mlm:
            self._make_mlm(options, padded=padded)
        else:
            self._make_multi_task(options, padded=padded)
        if work.job.name.peer == "minbert compiled":
            self.model.compile(dynamic=True)

    def _make_multi_task(self, options: dict[str, Any], *, padded: bool) -> None:
        work = self.work
        kind = work.shape["model_type"]
        specs = {name: describe_head(task, work.dropout, kind) for name, task in work.tasks.items()}
        self.model = MinBertForMultiTask.from_pretrained(work.job.model_dir, tasks=specs, **options)
        for head in self.model.heads.values():
            if head.out is not None:
                set_classifier(head.out)
        parts = make_datasets(work, columns=False)
        self.batches = work.number_batches(find_starts(parts))
        collator = {"data_collator": TaskCollator(0)} if padded else {}
        self.trainer = fix_batches(MultiTaskTrainer)(
            self.model,
            make_arguments(work, FastTrainingArguments),
            [Task(name, spec["problem_type"], parts[name]) for name, spec in specs.items()],
            **collator,
        )

    def _make_mlm(self, options: dict[str, Any], *, padded: bool) -> None:
        work, device = self.work, self.work.job.device
        self.model = MinBertForMaskedLM.from_pretrained(work.job.model_dir, **options)
        rows = JoinedRows(work)
        self.batches = work.number_batches(rows.starts)
        packed = not padded and self.model.supports_packed_input(torch.device(device))
        self.trainer = fix_batches(Trainer)(
            model=self.model,
            args=make_arguments(work, FastTrainingArguments, remove_unused_columns=False),
            train_dataset=rows,
            data_collator=MlmCollator(packed=packed),
        )

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters by their names in BERT's classes for one sequence."""
        # heads.<task>.out.<weight or bias>
        return {
            re.sub(r"^heads\.\w+\.out", "classifier", name): parameter
            for name, parameter in self.model.named_parameters()
        }


class MlmCollator:
    """minBERT's batches of the masks that all contenders share, padded or packed."""

    def __init__(self, *, packed: bool) -> None:
        self.collator = TaskCollator(0, packed=packed)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Collate a batch: padded (B, L), or packed (1, T) with offsets."""
        columns = [
            np.concatenate([row[name] for row in rows]).astype(np.int64)
            for name in ("input_ids", "token_type_ids", "labels")
        ]
        ids, segments, labels = columns
        lengths = np.asarray([len(row["input_ids"]) for row in rows])
        places = np.zeros((2, len(rows)), np.int64)
        joined = Joined(TEXT, len(rows), lengths, ids, segments, places, token_labels=labels)
        batch = self.collator(joined)
        del batch["task"]  # a model of one task has no names
        return batch


def describe_head(task: Plan, dropout: float, kind: str = "bert") -> dict[str, Any]:
    """Return minBERT's head of a task, the same function as in the others."""
    if task.kind == "classification":
        head = {"problem_type": task.kind, "labels": list("01234"), "dropout": dropout}
        return head if kind == "bert" else head | {"pooling": "cls"}
    pair = {"pair_encoding": "separate", "head": "cosine", "loss": "mse", "dropout": 0.0}
    scale = {"score_range": [0, 5]} if task.kind == "similarity" else {}
    return {"problem_type": task.kind, **pair, **scale}


class TwoForwards(nn.Module):
    """transformers' encoder with the usual heads: the cosine of mean states, and a classifier.

    The classifier reads the pooled state of BERT, and the state of the first token of other types.

    Args:
        work: Names model and tasks.
    """

    accepts_loss_kwargs = False  # the loss is a mean over rows

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.tasks = work.tasks
        has_single = any(task.per_row == 1 for task in work.tasks.values())
        is_bert = work.shape["model_type"] == "bert"
        options = {"add_pooling_layer": has_single} if is_bert else {}
        self.bert = AutoModel.from_pretrained(work.job.model_dir, **options, **work.dropout_options)
        if not is_bert and hasattr(self.bert, "pooler"):
            self.bert.pooler = None
        self.config = self.bert.config
        self.dropout = nn.Dropout(work.dropout)
        self.classifier = nn.Linear(self.config.hidden_size, CLASSES) if has_single else None
        if self.classifier is not None:
            set_classifier(self.classifier)

    def forward(
        self,
        labels: Tensor,
        task: str | None = None,
        first: dict[str, Tensor] | None = None,
        second: dict[str, Tensor] | None = None,
        **single: Any,
    ) -> ModelOutput:
        """Compute the loss of a batch of one task."""
        if first is None or second is None:
            if self.classifier is None:
                raise ValueError("single sentences, but all tasks are pairs")
            outputs = self.bert(**single)
            pooled = outputs.get("pooler_output")
            pooled = outputs.last_hidden_state[:, 0] if pooled is None else pooled
            logits = self.classifier(self.dropout(pooled))
            return ModelOutput(loss=F.cross_entropy(logits, labels), logits=logits)
        cosine = torch.cosine_similarity(self._embed(first), self._embed(second))
        kind = self.tasks[task or next(iter(self.tasks))].kind
        loss = F.mse_loss(cosine, scale_labels(kind, labels))
        return ModelOutput(loss=loss, logits=cosine)

    def _embed(self, side: dict[str, Tensor]) -> Tensor:
        states = self.bert(**side).last_hidden_state
        mask = side["attention_mask"].unsqueeze(-1).to(states.dtype)
        return (states * mask).sum(dim=1) / mask.sum(dim=1)


def load_transformers(work: Work) -> Any:
    """Load the model of transformers for a workload."""
    folder = work.job.model_dir
    if work.is_mlm:
        return AutoModelForMaskedLM.from_pretrained(folder, **work.dropout_options)
    is_bert = work.shape["model_type"] == "bert"
    if is_bert and [task.kind for task in work.tasks.values()] == ["classification"]:
        model = BertForSequenceClassification.from_pretrained(
            folder, num_labels=CLASSES, **work.dropout_options
        )
        set_classifier(model.classifier)
        return model
    return TwoForwards(work)


class TrainerPeer(WithTrainer):
    """transformers' Trainer and BERT: default settings, padding to the longest row."""

    def __init__(self, work: Work) -> None:
        self.model = load_transformers(work)
        rows = JoinedRows(work)
        self.batches = work.number_batches(rows.starts)
        self.trainer = fix_batches(Trainer)(
            model=self.model,
            args=make_arguments(work, remove_unused_columns=False),
            train_dataset=rows,
            data_collator=TransformersCollator(work),
        )


class BarePeer:
    """transformers' BERT in a plain loop: forward, backward, clip, fused AdamW and schedule."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.model = load_transformers(work).to(work.job.device)
        self.rows = JoinedRows(work)
        self.collate = TransformersCollator(work)

    def train(self, probe: Probe) -> None:
        """Run all steps of the job."""
        job, model = self.work.job, self.model
        no_decay = ("bias", "Norm.weight", "norm.weight")
        groups = [
            {
                "params": [p for n, p in model.named_parameters() if n.endswith(no_decay) == skips],
                "weight_decay": 0.0 if skips else WEIGHT_DECAY,
            }
            for skips in (False, True)
        ]
        optimizer = torch.optim.AdamW(groups, lr=LEARNING_RATE, fused=True)
        schedule = get_linear_schedule_with_warmup(optimizer, 0, self.work.steps)
        model.train()
        for batch in self.work.number_batches(self.rows.starts):
            inputs = send_to_device(self.collate(self.rows.__getitems__(batch)), job.device)
            probe.on_batch(inputs)
            half = job.name.precision == "bfloat16"
            with torch.autocast(job.device, torch.bfloat16, enabled=half):
                loss = model(**inputs).loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            probe.on_gradients()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            probe.on_loss(loss)
            probe.on_step()

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters by name."""
        return name_parameters(self.model)


class SentencePeer(WithTrainer):
    """``SentenceTransformerTrainer`` with ``CosineSimilarityLoss``, on one task of pairs."""

    def __init__(self, work: Work) -> None:
        import sentence_transformers
        from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

        ((name, task),) = work.tasks.items()
        encoder = Transformer(str(work.job.model_dir), config_kwargs=work.dropout_options)
        pooling = Pooling(encoder.get_embedding_dimension(), "mean")
        self.model = sentence_transformers.SentenceTransformer(
            modules=[encoder, pooling], device=work.job.device
        )
        self.batches = work.number_batches({name: 0})
        pad = TransformersCollator(work)

        class Collator:
            """The batches of its collator from tokens, without tokenization."""

            valid_label_columns = ("labels",)

            def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
                batch = pad(rows)
                columns = {"label": scale_labels(task.kind, batch["labels"])}
                for column, side in (("sentence1", "first"), ("sentence2", "second")):
                    columns |= {f"{column}_{key}": value for key, value in batch[side].items()}
                return columns

        self.trainer = fix_batches(sentence_transformers.SentenceTransformerTrainer)(
            model=self.model,
            args=make_arguments(work, sentence_transformers.SentenceTransformerTrainingArguments),
            train_dataset=make_datasets(work, columns=True)[name],
            loss=CosineSimilarityLoss(self.model),
            data_collator=Collator(),
        )

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters by their names in BERT's classes for one sequence."""
        named: Iterator[tuple[str, nn.Parameter]] = self.model[0].named_parameters()
        return {f"bert.{name.split('.', 1)[1]}": parameter for name, parameter in named}
