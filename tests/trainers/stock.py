"""The same training with transformers' own Trainer and BERT."""

from operator import itemgetter

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class FixedSeeds(TrainerCallback):
    """Draws the same random numbers in a step of any trainer, whatever it has drawn before."""

    def on_step_begin(self, _, state, *__, **___):
        torch.manual_seed(state.global_step)


def as_stock(model):
    """Make a BERT with the weights of an encoder and of the head of the default task."""
    stock = BertForSequenceClassification(model.config.to_transformers())
    stock.bert.load_state_dict(model.bert.state_dict())
    stock.classifier.load_state_dict(model.heads[model.config.default_task].out.state_dict())
    return stock


def as_padded(batch):
    """Return what BERT reads of a batch, packed or padded; no word has the id of the padding."""
    ids = batch["input_ids"]
    if "cu_seq_lens_q" in batch:
        ids = pad_sequence(ids[0].split(batch["cu_seq_lens_q"].diff().tolist()), batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": batch["labels"]}


def train_stock(model, batches, folder, **options):
    """Train on packed or padded batches, in their order."""
    args = TrainingArguments(
        str(folder / "stock"),
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        logging_steps=1,
        learning_rate=0.01,
        max_steps=len(batches),
        per_device_train_batch_size=1,
        train_sampling_strategy="sequential",
        **options,
    )
    rows = [as_padded(batch) for batch in batches]
    trainer = Trainer(model, args, itemgetter(0), train_dataset=rows, callbacks=[FixedSeeds()])
    trainer.train()
    return trainer


def losses(trainer):
    """The loss of every step."""
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
