"""The same training with transformers' own Trainer and BERT."""

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)


class FixedSeeds(TrainerCallback):
    """Draws the same random numbers in a step of any trainer, whatever it has drawn before."""

    def on_step_begin(self, _, state, *__, **___):
        torch.manual_seed(state.global_step)


def as_stock(model, task):
    """Make a BERT with the weights of an encoder and a linear head on the pooler."""
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    names += ("intermediate_size", "max_position_embeddings")
    sizes = {name: getattr(model.config, name) for name in names}
    head = model.heads[task].out
    config = BertConfig(
        **sizes, num_labels=head.out_features, hidden_dropout_prob=0, attention_probs_dropout_prob=0
    )
    stock = BertForSequenceClassification(config)
    missing = stock.bert.load_state_dict(model.bert.state_dict(), strict=False)
    assert not missing.missing_keys
    stock.classifier.load_state_dict(head.state_dict())
    return stock


def train_stock(model, batches, folder, **options):
    """Train on the rows of packed or padded batches, in their order."""
    rows = [row for batch in batches for row in split_rows(batch)]
    width = max(len(row["input_ids"]) for row in rows)

    def collate(features):
        padded = []
        for row in features:
            fill = width - len(row["input_ids"])
            padded.append(
                {
                    "input_ids": row["input_ids"] + [0] * fill,
                    "attention_mask": [1] * len(row["input_ids"]) + [0] * fill,
                    "labels": row["labels"],
                }
            )
        return default_data_collator(padded)

    args = TrainingArguments(
        str(folder / "stock"),
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
        logging_steps=1,
        learning_rate=0.01,
        max_steps=len(batches),
        per_device_train_batch_size=len(batches[0]["labels"]),
        train_sampling_strategy="sequential",
        **options,
    )
    callbacks = [FixedSeeds()]
    trainer = Trainer(model, args, collate, train_dataset=rows, callbacks=callbacks)
    trainer.train()
    return trainer


def split_rows(batch):
    """List the rows of a batch of single sequences."""
    labels = batch["labels"].tolist()
    if "cu_seq_lens_q" in batch:
        lengths = batch["cu_seq_lens_q"].diff().tolist()
        sequences = batch["input_ids"][0].split(lengths)
    else:
        counts = batch["attention_mask"].sum(dim=1).tolist()
        sequences = [ids[:count] for ids, count in zip(batch["input_ids"], counts, strict=True)]
    return [
        {"input_ids": ids.tolist(), "labels": label}
        for ids, label in zip(sequences, labels, strict=True)
    ]


def losses(trainer):
    """The loss of every step."""
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
