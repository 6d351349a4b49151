"""A search for hyperparameters, in one process or as one of several.

Started by ``test_model_init.py`` with ``torch.distributed.run``.
"""

import os
import sys
from pathlib import Path

import optuna
import torch
from transformers import TrainingArguments

from tests.trainers.tiny import make_model, make_tasks, weights
from trainers import MultiTaskTrainer


def search(folder, batch_size):
    """Search in two trials; return the rate, the objective and the weights of each."""
    args = TrainingArguments(
        str(folder / "run"),
        use_cpu=True,
        disable_tqdm=True,
        max_steps=6,
        save_strategy="no",
        per_device_train_batch_size=batch_size,
    )
    trainer = MultiTaskTrainer(
        model_init=lambda: make_model(seed=None), args=args, tasks=make_tasks(), steps_per_epoch=6
    )
    trials = []

    def space(trial):
        return {"learning_rate": trial.suggest_float("learning_rate", 1e-3, 1e-1, log=True)}

    def objective(metrics):
        trials.append((trainer.args.learning_rate, metrics["eval_mean"], weights(trainer)))
        return metrics["eval_mean"]

    sampler = optuna.samplers.RandomSampler(seed=3)
    options = {"n_trials": 2, "direction": "maximize", "sampler": sampler}
    trainer.hyperparameter_search(space, objective, **options)
    return trials


if __name__ == "__main__":
    found = search(Path(sys.argv[1]), batch_size=3)
    torch.save(found, Path(sys.argv[1]) / f"rank-{os.environ['RANK']}.pt")
    torch.distributed.barrier()  # destroying a gloo group while the other rank works can abort
    torch.distributed.destroy_process_group()
