"""Adapt an encoder to your own text by masked language modeling, with transformers' Trainer.

python examples/masked_words.py [--model google-bert/bert-base-uncased]
"""

import argparse

from datasets import Dataset
from transformers import (
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

from modeling_minbert import MinBertForMaskedLM

TEXT = (
    "The garden lies behind the house. In spring the old pear tree is white with blossoms.",
    "Bees come early in the morning. They leave when the sun is behind the hill.",
    "The river is cold even in summer. Children swim near the bridge.",
    "Bread needs time. The dough rests for an hour, then it goes into the oven.",
)


def main() -> None:
    """Train on a few sentences, and save an ordinary BERT."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="google-bert/bert-base-uncased")
    parser.add_argument("--output_dir", default="runs/masked_words")
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = MinBertForMaskedLM.from_pretrained(args.model)
    rows = Dataset.from_dict(dict(tokenizer(list(TEXT), truncation=True, max_length=128)))
    arguments = TrainingArguments(
        args.output_dir, num_train_epochs=3, learning_rate=5e-5, report_to="none"
    )
    # the batches are padded as usual; the encoder computes their real tokens only
    trainer = Trainer(
        model,
        arguments,
        train_dataset=rows,
        data_collator=DataCollatorForLanguageModeling(tokenizer),
    )
    trainer.train()

    model.save_as_bert(args.output_dir)  # loads without minBERT
    tokenizer.save_pretrained(args.output_dir)
    print(f"{args.output_dir}: a BERT that has seen your text")


if __name__ == "__main__":
    main()
