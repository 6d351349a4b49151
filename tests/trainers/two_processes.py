"""One of two processes: train, resume within the second epoch, record the batches.

Started by ``test_two_processes.py`` with ``torch.distributed.run``.
"""

import json
import os
import sys
from pathlib import Path

import torch
from transformers import TrainerCallback

from tests.trainers.tiny import make_trainer


def run(folder, options, resume_from=None):
    tasks = []

    class Watch(TrainerCallback):
        """Note the task of every batch that the model sees in training."""

        def on_train_begin(self, *_, model, **__):
            model.register_forward_pre_hook(note, with_kwargs=True)

    def note(model, _, inputs):
        if model.training:
            tasks.append((inputs["task"], inputs["input_ids"].tolist()))

    trainer = make_trainer(folder / "run", callbacks=[Watch()], **options)
    trainer.train(resume_from_checkpoint=resume_from)
    return trainer, tasks


def main():
    folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    trainer, tasks = run(folder, options)
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    metrics = trainer.evaluate()
    resumed, _ = run(folder, options, str(folder / "run" / "checkpoint-5"))
    result = {
        "tasks": tasks,
        "weights": weights,
        "resumed": resumed.model.state_dict(),
        "log": trainer.state.log_history,
        "metrics": metrics,
    }
    torch.save(result, folder / f"rank-{os.environ['RANK']}.pt")
    torch.distributed.barrier()  # destroying a gloo group while the other rank works can abort
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
