"""PCGrad and GradVac: gradients of tasks that contradict each other are changed.

Both are computed from the T x T dot products of the gradients of T tasks.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import TrainerState, TrainingArguments

from trainers.data.sampling.task_sampling import TaskSampling

from .base import Method
from .layers import count_layers, layer_of

MergeRule = Literal["pcgrad", "gradvac"]
# Weight of a new cosine in the moving average that is GradVac's target.
TARGET_DECAY = 0.01


class GradientMerger:
    """Merge the gradients of several tasks on the parameters that they share.

    - ``pcgrad``: the gradient of task i loses, for all other j in random order, the component that
      opposes the original gradient of j. Source: Yu et al. 2020, algorithm 1.
    - ``gradvac``: the gradient of i turns towards that of j until their cosine reaches the moving
      average of earlier ones; each layer, the embeddings, and everything above the layers have
      gradients and targets of their own. Source: Wang et al. 2021, algorithm 1.

    ``take`` follows the backward pass of a task, and ``merge`` all of them: it writes the sum (not
    the mean) to ``.grad``. Without conflicts the result is the plain sum, bit for bit. Gradients
    are those of the weighted losses; a loss scale of float16 scales the result. Memory: T x P
    float32 numbers for T tasks and P shared parameters.
    """

    def __init__(self, model: nn.Module, tasks: Sequence[str], rule: MergeRule, seed: int) -> None:
        self.rule = rule
        self._tasks = list(tasks)
        self._seed = seed
        shared = find_shared(model)
        if len(tasks) < 2 or not shared:
            raise ValueError(
                f"gradient_surgery: {rule} needs two or more tasks with shared trainable "
                f"parameters; found {len(tasks)} task(s) and {len(shared)} such parameters in "
                "base_model (tasks that share rows count as one); leave it out"
            )
        layers = group_by_layer(model, shared) if rule == "gradvac" else {0: list(shared.values())}
        self._parameters = list(chain.from_iterable(layers.values()))
        self._places = cut_vector([parameter.numel() for parameter in self._parameters])
        sizes = [sum(parameter.numel() for parameter in group) for group in layers.values()]
        self.groups = dict(zip(layers, cut_vector(sizes), strict=True))
        self.targets = np.zeros((len(self.groups), len(self._tasks), len(self._tasks)))
        own = {id(parameter) for parameter in self._parameters}
        self._others = [
            parameter
            for parameter in model.parameters()
            if parameter.requires_grad and id(parameter) not in own
        ]
        self._vectors: Tensor | None = None
        self._touched: set[int] = set()

    def take(self, task: str) -> None:
        """Move the gradients of the shared parameters into the vector of a task."""
        if self._vectors is None:
            size, device = self._places[-1].stop, self._parameters[0].device
            self._vectors = torch.zeros(len(self._tasks), size, device=device)
        elif not self._touched:
            self._vectors.zero_()
        vector = self._vectors[self._tasks.index(task)]
        for index, (parameter, place) in enumerate(
            zip(self._parameters, self._places, strict=True)
        ):
            if parameter.grad is not None:
                vector[place].add_(parameter.grad.flatten())
                parameter.grad = None
                self._touched.add(index)

    def merge(self, step: int) -> float:
        """Write the merged gradients; return the share of task pairs with opposed gradients."""
        if self._vectors is None:
            raise ValueError("there are no gradients to merge: call take(task) after each backward")
        self._average(self._vectors)
        grams = self._dot_products(self._vectors)
        weights = self._weigh(grams, step)
        merged = self._vectors[0]
        for group, factors in zip(self.groups.values(), weights.tolist(), strict=True):
            part = merged[group].mul_(factors[0])
            for other, factor in zip(self._vectors[1:, group], factors[1:], strict=True):
                part.add_(other, alpha=factor)
        for index in self._touched:
            parameter = self._parameters[index]
            gradient = merged[self._places[index]].view_as(parameter)
            parameter.grad = gradient.to(parameter.dtype)
        self._touched.clear()
        pairs = np.triu_indices(len(self._tasks), k=1)
        return float((grams.sum(axis=0)[pairs] < 0).mean())

    def forget(self) -> None:
        self._vectors = None
        self._touched.clear()

    def draw_orders(self, step: int) -> list[list[int]]:
        """Draw for each task the order of the other tasks at an optimizer step."""
        key = np.random.SeedSequence((self._seed, step), spawn_key=(2,))
        generator, tasks = np.random.default_rng(key), range(len(self._tasks))
        return [
            generator.permutation([other for other in tasks if other != task]).tolist()
            for task in tasks
        ]

    def _average(self, vectors: Tensor) -> None:
        """Average all gradients over processes, before any nonlinear operation."""
        if not torch.distributed.is_initialized():
            return
        gradients = [other.grad for other in self._others if other.grad is not None]
        for gradient in (vectors, *gradients):
            torch.distributed.all_reduce(gradient)
            gradient.div_(torch.distributed.get_world_size())

    def _dot_products(self, vectors: Tensor) -> NDArray[np.float64]:
        """Compute the dot products of the gradients of all task pairs, (G, T, T)."""
        count = len(self._tasks)
        rows, columns = np.triu_indices(count)
        products = torch.stack(
            [
                torch.dot(vectors[row, group], vectors[column, group])
                for group in self.groups.values()
                for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
            ]
        )
        grams = np.empty((len(self.groups), count, count))
        # one copy from the device
        grams[:, rows, columns] = products.double().cpu().numpy().reshape(len(self.groups), -1)
        grams[:, columns, rows] = grams[:, rows, columns]
        return grams

    def _weigh(self, grams: NDArray[np.float64], step: int) -> NDArray[np.float64]:
        """Compute the coefficient of each gradient in the sum, (G, T)."""
        if not np.isfinite(grams).all():
            # float16 overflowed: the scaler will skip the step
            return np.ones(grams.shape[:2])
        orders = self.draw_orders(step)
        if self.rule == "pcgrad":
            return np.stack([project_conflicts(gram, orders) for gram in grams])
        results = [vaccinate(*pair, orders) for pair in zip(grams, self.targets, strict=True)]
        self.targets = np.stack([targets for _, targets in results])
        return np.stack([weights for weights, _ in results])


def project_conflicts(gram: NDArray[np.float64], orders: list[list[int]]) -> NDArray[np.float64]:
    """Compute PCGrad's coefficients, (T,), from dot products, (T, T), in orders of the others."""
    weights = np.eye(len(gram))  # row i: coefficients of the gradient of task i
    for task, others in enumerate(orders):
        for other in others:
            dot = weights[task] @ gram[:, other]
            if dot < 0:
                weights[task, other] -= dot / gram[other, other]
    return weights.sum(axis=0)


def vaccinate(
    gram: NDArray[np.float64], targets: NDArray[np.float64], orders: list[list[int]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute GradVac's coefficients, (T,), and next targets from dot products, both (T, T).

    A zero gradient has no direction: its pairs and their targets stay as they are.
    """
    weights, targets = np.eye(len(gram)), targets.copy()
    for task, others in enumerate(orders):
        for other in others:
            own = weights[task]
            norm, length = np.sqrt(max(0.0, own @ gram @ own)), np.sqrt(gram[other, other])
            if norm == 0 or length == 0:
                continue
            cosine = np.clip(own @ gram[:, other] / (norm * length), -1, 1)
            target = targets[task, other]
            if cosine < target < 1:
                sine, target_sine = np.sqrt(1 - cosine**2), np.sqrt(1 - target**2)
                excess = target * sine - cosine * target_sine
                weights[task, other] += norm * excess / (length * target_sine)
            targets[task, other] = (1 - TARGET_DECAY) * target + TARGET_DECAY * cosine
    return weights.sum(axis=0), targets


def find_shared(model: Any) -> dict[str, nn.Parameter]:
    """Return the trainable parameters of the base model, which all tasks share."""
    base = getattr(model, "base_model", None)
    if base is None or base is model:
        return {}
    return {
        name: parameter for name, parameter in base.named_parameters() if parameter.requires_grad
    }


def group_by_layer(
    model: nn.Module, shared: dict[str, nn.Parameter]
) -> dict[int, list[nn.Parameter]]:
    """Group the shared parameters by layer, in the order of their first parameters."""
    count = count_layers(model, "gradient_surgery: gradvac")
    layers: dict[int, list[nn.Parameter]] = {}
    for name, parameter in shared.items():
        layers.setdefault(layer_of(name, count), []).append(parameter)
    return layers


def cut_vector(sizes: Sequence[int]) -> list[slice]:
    """Return adjacent slices of the given sizes."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [slice(*pair) for pair in pairwise(ends)]


SURGERY_FILE = "gradient_surgery.pt"


@dataclass
class GradientSurgery(Method):
    """PCGrad or GradVac on the parameters that all tasks share; see ``GradientMerger``.

    Args:
        rule: ``pcgrad`` or ``gradvac``.

    Raises:
        ValueError: If the rule is unknown.
    """

    rule: MergeRule
    averages_gradients = True

    def __post_init__(self) -> None:
        self.conflicts: list[float] = []
        if self.rule not in ("pcgrad", "gradvac"):
            raise ValueError(f"gradient_surgery={self.rule!r}; expected pcgrad, gradvac or null")

    def check_sampling(self, sampling: TaskSampling) -> None:
        if not sampling.mixes_tasks:
            raise ValueError(
                f"gradient_surgery: {self.rule} compares the gradients of all tasks at every step; "
                f"use task_sampling: mixed instead of {sampling.name}"
            )
        _refuse_fsdp(self.rule, os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true")

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        _refuse_fsdp(self.rule, bool(args.fsdp))

    def attach(self, trainer: Any) -> None:
        self.conflicts = []
        # tasks that share rows have one gradient
        tasks = [
            name for name, each in trainer.tasks.items() if each.training.shares_rows_with is None
        ]
        self.merger = GradientMerger(trainer.model, tasks, self.rule, trainer.args.seed)

    def after_backward(self, task: str) -> None:
        self.merger.take(task)

    def before_optimizer(self, state: TrainerState) -> None:
        self.conflicts.append(self.merger.merge(state.global_step))

    def release(self) -> None:
        self.merger.forget()

    def log(self, logs: dict[str, float]) -> None:
        """Add ``gradient_conflicts``, the share of task pairs with opposed gradients."""
        if self.conflicts:
            logs["gradient_conflicts"] = sum(self.conflicts) / len(self.conflicts)
            self.conflicts = []

    def save(self, folder: Path) -> None:
        torch.save({"targets": torch.from_numpy(self.merger.targets)}, folder / SURGERY_FILE)

    def load(self, folder: Path) -> None:
        state = torch.load(folder / SURGERY_FILE, weights_only=True)
        self.merger.targets = state["targets"].numpy()


def _refuse_fsdp(rule: str, is_sharded: bool) -> None:
    if is_sharded:
        raise ValueError(
            f"gradient_surgery: {rule} needs the whole gradient of each task, and FSDP shards it; "
            "train without FSDP or without gradient_surgery"
        )
