"""PCGrad: gradients of tasks that contradict each other are changed."""

from itertools import combinations_with_replacement, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import TrainerState

from trainers.data.sampling import TaskSampling

from .base import Method, refuse_sharding

if TYPE_CHECKING:
    from trainers.training.multitask import MultiTaskTrainer


class GradientSurgery(Method):
    """Merge the gradients of several tasks on the parameters that they share by PCGrad.

    The gradient of task i loses, for all other j in random order, the component that opposes the
    original gradient of j. Source: Yu et al. 2020, algorithm 1; computed from the T x T dot
    products of the gradients of T tasks.

    The result is the sum (not the mean); without conflicts it is the plain sum, bit for bit.
    Gradients are those of the weighted losses; a loss scale of float16 scales the result. Memory:
    T x P float32 numbers for T tasks and P shared parameters.
    """

    averages_gradients = True

    def check_sampling(self, sampling: TaskSampling) -> None:
        if not sampling.mixes_tasks:
            raise ValueError(
                "gradient_surgery: pcgrad compares the gradients of all tasks at every step; use "
                f"task_sampling: mixed instead of {sampling.task_sampling}"
            )

    def attach(self, trainer: "MultiTaskTrainer") -> None:
        refuse_sharding(trainer, "gradient_surgery")
        model: Any = trainer.model
        self._tasks, self._seed = list(trainer.tasks), trainer.args.seed
        base = getattr(model, "base_model", model)
        shared = [] if base is model else [x for x in base.parameters() if x.requires_grad]
        if len(self._tasks) < 2 or not shared:
            raise ValueError(
                "gradient_surgery: pcgrad needs two or more tasks with shared trainable "
                f"parameters; found {len(self._tasks)} task(s) and {len(shared)} such parameters "
                "in base_model; leave it out"
            )
        self._parameters: list[nn.Parameter] = shared
        ends = np.cumsum([0, *(parameter.numel() for parameter in shared)]).tolist()
        self._places = [slice(*pair) for pair in pairwise(ends)]
        ids = {id(parameter) for parameter in shared}
        self._others = [x for x in model.parameters() if x.requires_grad and id(x) not in ids]
        self.conflicts: list[float] = []  # by step: the share of pairs with opposed gradients
        self.begin()

    def begin(self) -> None:
        """Forget the gradients of a run that was stopped."""
        self._vectors: Any = None  # (T, P), after a backward pass
        self._touched: set[int] = set()

    def finish(self) -> None:
        self.begin()

    def after_backward(self, task: str) -> None:
        """Move the gradients of the shared parameters into the vector of a task."""
        if self._vectors is None:
            size, device = self._places[-1].stop, self._parameters[0].device
            self._vectors = torch.zeros(len(self._tasks), size, device=device)
        elif not self._touched:
            self._vectors.zero_()
        vector = self._vectors[self._tasks.index(task)]
        pairs = zip(self._parameters, self._places, strict=True)
        for index, (parameter, place) in enumerate(pairs):
            if parameter.grad is not None:
                vector[place].add_(parameter.grad.flatten())
                parameter.grad = None
                self._touched.add(index)

    def before_optimizer(self, state: TrainerState) -> None:
        """Write the merged gradients to ``.grad``, and note the conflicts."""
        if self._vectors is None:
            raise ValueError("gradient_surgery: no task had a backward pass")
        if torch.distributed.is_initialized():  # averaged before any nonlinear operation
            gradients = [other.grad for other in self._others if other.grad is not None]
            for tensor in (self._vectors, *gradients):
                torch.distributed.all_reduce(tensor)
                tensor.div_(torch.distributed.get_world_size())
        pairs = combinations_with_replacement(self._vectors, 2)
        products = torch.stack([torch.dot(*pair) for pair in pairs])
        rows, columns = np.triu_indices(len(self._tasks))
        gram = np.empty((len(self._tasks), len(self._tasks)))
        gram[rows, columns] = products.double().cpu().numpy()  # one copy from the device
        gram[columns, rows] = gram[rows, columns]
        if np.isfinite(gram).all():
            factors = project_conflicts(gram, self.draw_orders(state.global_step))
        else:  # float16 overflowed: the scaler will skip the step
            factors = np.ones(len(gram))
        first, *others = factors.tolist()
        merged = self._vectors[0].mul_(first)
        for vector, factor in zip(self._vectors[1:], others, strict=True):
            merged.add_(vector, alpha=factor)
        for index in self._touched:
            parameter = self._parameters[index]
            gradient = merged[self._places[index]].view_as(parameter)
            parameter.grad = gradient.to(parameter.dtype)
        self._touched.clear()
        self.conflicts.append(float((gram[np.triu_indices(len(gram), k=1)] < 0).mean()))

    def draw_orders(self, step: int) -> list[list[int]]:
        """Draw for each task the order of the other tasks at an optimizer step."""
        key = np.random.SeedSequence((self._seed, step), spawn_key=(2,))
        generator, tasks = np.random.default_rng(key), range(len(self._tasks))
        return [
            generator.permutation([other for other in tasks if other != task]).tolist()
            for task in tasks
        ]

    def log(self, logs: dict[str, float]) -> None:
        """Add ``gradient_conflicts``, the share of task pairs with opposed gradients."""
        if self.conflicts:
            logs["gradient_conflicts"] = sum(self.conflicts) / len(self.conflicts)
            self.conflicts = []


def project_conflicts(gram: NDArray[np.float64], orders: list[list[int]]) -> NDArray[np.float64]:
    """Compute PCGrad's coefficients, (T,), from dot products, (T, T), in orders of the others."""
    weights = np.eye(len(gram))  # row i: coefficients of the gradient of task i
    for task, others in enumerate(orders):
        for other in others:
            dot = weights[task] @ gram[:, other]
            if dot < 0:
                weights[task, other] -= dot / gram[other, other]
    return weights.sum(axis=0)
