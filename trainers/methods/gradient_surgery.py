"""Gradients of tasks that get in each other's way: PCGrad and GradVac on what the tasks share.

Both give a task a sum of its own gradient and multiples of those of the others. So all that they
need are the dot products of the gradients, a matrix of T x T numbers; the vectors themselves are
only read once more, to be added up.

Shapes: T tasks, P shared parameters, G groups of them.
"""

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import TrainingArguments

from trainers.data.task_sampling import SamplingArguments

from .layers import count_layers, layer_of

Method = Literal["pcgrad", "gradvac"]
# Weight of a new similarity in the moving average that is the target of GradVac.
TARGET_DECAY = 0.01


class GradientSurgery:
    """Merge the gradients of several tasks on the parameters that they share.

    After the backward pass of a task `take` moves its gradient into a flat float32 vector; `merge`,
    once per optimizer step, averages the vectors over the processes, makes the tasks get along and
    leaves the sum, not the mean, of the results where the optimizer looks for it. Parameters that
    only some tasks have keep their gradients as they are. If nothing conflicts the result is the
    plain sum, to the bit.

    - ``pcgrad`` takes from the gradient of task i, for all other tasks j in random order, what
      points against the gradient of j, which is always the original one. All shared parameters are
      one vector. Source: Yu et al. 2020, algorithm 1.
    - ``gradvac`` turns the gradient of i towards that of j until their cosine reaches a target, the
      moving average of the cosines so far. Every layer, the embeddings, and what comes after the
      layers have their own gradients and targets. Source: Wang et al. 2021, algorithm 1.

    Loss weights count: the gradients are those of the weighted losses. A loss that is scaled for
    float16 scales the result. Memory: T x P float32 numbers.

    Args:
        model: What its tasks share is its ``base_model``, as transformers calls the encoder of a
            model without its heads.
        tasks: Names of the tasks.
        method: ``pcgrad`` or ``gradvac``.
        seed: Of the run, >= 0; with the step it decides about the order of the tasks j.

    Raises:
        ValueError: If there is one task only, nothing to be trained that tasks share, or for
            GradVac no number of layers in the configuration.
    """

    def __init__(self, model: nn.Module, tasks: Sequence[str], method: Method, seed: int) -> None:
        self.method = method
        self._tasks = list(tasks)
        self._seed = seed
        shared = find_shared(model)
        if len(self._tasks) < 2 or not shared:
            raise ValueError(
                f"gradient_surgery: {method} is for two tasks or more that share parameters which "
                f"are trained; found {len(self._tasks)} task(s) and {len(shared)} such parameters "
                "in base_model; leave it out"
            )
        layers: dict[int, list[nn.Parameter]] = {}
        count = count_layers(model, "gradient_surgery: gradvac") if method == "gradvac" else 0
        for name, parameter in shared.items():
            layer = layer_of(name, count) if method == "gradvac" else 0
            layers.setdefault(layer, []).append(parameter)
        self._parameters = [parameter for group in layers.values() for parameter in group]
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
        """Move the gradients of the shared parameters to those of a task."""
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
        """Make the merged gradients those of the parameters.

        Args:
            step: The optimizer step.

        Returns:
            Share of the pairs of tasks whose gradients point against each other.
        """
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
        """Forget all gradients, and free their memory."""
        self._vectors = None
        self._touched.clear()

    def state_dict(self) -> dict[str, Tensor]:
        """Give what a run needs to go on."""
        return {"targets": torch.from_numpy(self.targets.copy())}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on with what `state_dict` gave."""
        self.targets = state["targets"].numpy().copy()

    def draw_orders(self, step: int) -> list[list[int]]:
        """Draw for each task the order of the others at an optimizer step."""
        key = np.random.SeedSequence((self._seed, step), spawn_key=(2,))
        generator, tasks = np.random.default_rng(key), range(len(self._tasks))
        return [
            generator.permutation([other for other in tasks if other != task]).tolist()
            for task in tasks
        ]

    def _average(self, vectors: Tensor) -> None:
        """Average all gradients over the processes, before anything that is not linear."""
        if not torch.distributed.is_initialized():
            return
        gradients = [other.grad for other in self._others if other.grad is not None]
        for gradient in (vectors, *gradients):
            torch.distributed.all_reduce(gradient)
            gradient.div_(torch.distributed.get_world_size())

    def _dot_products(self, vectors: Tensor) -> NDArray[np.float64]:
        """Multiply the gradients of all pairs of tasks with each other, (G, T, T)."""
        count = len(self._tasks)
        rows, columns = np.triu_indices(count)
        found = torch.stack(
            [
                torch.dot(vectors[row, group], vectors[column, group])
                for group in self.groups.values()
                for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
            ]
        )
        grams = np.empty((len(self.groups), count, count))
        # one copy from the device
        grams[:, rows, columns] = found.double().cpu().numpy().reshape(len(self.groups), -1)
        grams[:, columns, rows] = grams[:, rows, columns]
        return grams

    def _weigh(self, grams: NDArray[np.float64], step: int) -> NDArray[np.float64]:
        """Find how often each gradient is in the sum, (G, T)."""
        if not np.isfinite(grams).all():
            # float16 went out of range: the scaler will find it and leave the step out
            return np.ones(grams.shape[:2])
        orders = self.draw_orders(step)
        if self.method == "pcgrad":
            return np.stack([project_conflicts(gram, orders) for gram in grams])
        found = [vaccinate(*pair, orders) for pair in zip(grams, self.targets, strict=True)]
        self.targets = np.stack([targets for _, targets in found])
        return np.stack([weights for weights, _ in found])


def project_conflicts(gram: NDArray[np.float64], orders: list[list[int]]) -> NDArray[np.float64]:
    """Compute PCGrad.

    Args:
        gram: Dot products of the gradients, (T, T).
        orders: For each task the order of the others.

    Returns:
        How often each gradient is in the sum of the projected ones, (T,).
    """
    weights = np.eye(len(gram))  # row i: what the gradient of task i is made of
    for task, others in enumerate(orders):
        for other in others:
            dot = weights[task] @ gram[:, other]
            if dot < 0:
                weights[task, other] -= dot / gram[other, other]
    total: NDArray[np.float64] = weights.sum(axis=0)
    return total


def vaccinate(
    gram: NDArray[np.float64], targets: NDArray[np.float64], orders: list[list[int]]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute GradVac.

    A gradient of zeros has no direction: its pairs, and their targets, stay as they are.

    Args:
        gram: Dot products of the gradients, (T, T).
        targets: Cosine that the gradient of a task shall have with that of another, (T, T).
        orders: For each task the order of the others.

    Returns:
        How often each gradient is in the sum, (T,), and the targets of the next step, (T, T).
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
    """List the parameters that are trained and that all tasks share: those of the base model."""
    base = getattr(model, "base_model", None)
    if base is None or base is model:
        return {}
    return {
        name: parameter for name, parameter in base.named_parameters() if parameter.requires_grad
    }


def cut_vector(sizes: Sequence[int]) -> list[slice]:
    """Cut a vector into neighbours of these sizes."""
    ends = np.cumsum([0, *sizes]).tolist()
    return [slice(*pair) for pair in pairwise(ends)]


def check_surgery(
    method: str | None, sampling: SamplingArguments, args: TrainingArguments | None = None
) -> None:
    """Refuse a method that would not see all tasks at a step, or not whole gradients.

    Args:
        method: The method, or None.
        sampling: How the task of a step is chosen.
        args: Arguments of the Trainer, if they are known.

    Raises:
        ValueError: If the method is unknown, steps are not mixed, or gradients are sharded.
    """
    if method is None:
        return
    if method not in ("pcgrad", "gradvac"):
        raise ValueError(f"gradient_surgery={method!r}; expected pcgrad, gradvac or null")
    if sampling.task_sampling != "mixed":
        raise ValueError(
            f"gradient_surgery: {method} compares the gradients of all tasks at every step: take "
            f"task_sampling: mixed in the place of {sampling.task_sampling}"
        )
    launched = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if launched or (args is not None and args.fsdp):
        raise ValueError(
            f"gradient_surgery: {method} needs the whole gradient of each task, and FSDP shards "
            "it; train without FSDP or without gradient_surgery"
        )
