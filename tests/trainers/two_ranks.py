"""One of two processes: a loss that compares rows, and a training after an evaluation.

Started by ``test_two_ranks.py``.
"""

import sys
from pathlib import Path

import torch
from torch import distributed

from modeling_minbert import MinBertForMultiTask
from tests.trainers.tiny import make_config, make_trainer

PAIR = {"pair_encoding": "separate", "head": "cosine"}
TASKS = {
    "near": {"problem_type": "contrastive", "num_sentences": 3},
    "same": PAIR | {"problem_type": "paraphrase", "loss": "multiple_negatives_ranking"},
    "order": PAIR | {"problem_type": "similarity", "score_range": [0, 5], "loss": "cosent"},
}
ROWS = 7
# Rows of each process, of unequal numbers.
PARTS = (slice(3), slice(3, ROWS))


def compare(task, part=slice(ROWS)):
    """Compute the loss of a part of the rows, and the gradient of its vectors."""
    config = make_config(TASKS)
    head = MinBertForMultiTask(config).heads[task]
    head.gathers = True
    generator = torch.Generator().manual_seed(0)
    shape = (ROWS, 3 if task == "near" else 2)
    vectors = torch.randn(*shape, 12, generator=generator)[part].requires_grad_()
    keys = torch.arange(shape[0] * shape[1]).view(shape)
    keys[5, 0], keys[6, 1] = keys[0, 0], keys[2, 1]  # texts of the other process
    labels = torch.tensor([1.0, 0, 1, 1, -100, 1, 0])
    scores = head.score(vectors)
    loss = head.loss(vectors, scores, labels[part], None if task == "order" else keys[part])
    loss.backward()
    return loss.detach(), vectors.grad


def train(folder):
    """Evaluate, train with the rows of this process, and return the weights."""
    trainer = make_trainer(folder, max_steps=2, ddp_backend="gloo")
    trainer.evaluate()
    trainer.train()
    return torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()])


def main():
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    found = {task: compare(task, PARTS[rank]) for task in TASKS}
    found["trained"] = train(sys.argv[1])
    torch.save(found, Path(sys.argv[1]) / f"rank-{rank}.pt")
    distributed.barrier()  # destroying a gloo group while the other rank works can abort
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
