"""Train one model on two tasks with rows that you have in Python.

python examples/several_tasks.py [--model sentence-transformers/all-MiniLM-L6-v2]
"""

import argparse

from datasets import Dataset
from transformers import AutoTokenizer, TrainingArguments

from modeling_minbert import MinBertForMultiTask
from trainers import MultiTaskTrainer, Task

MOODS = {
    "bad": ["This is awful.", "I was bored.", "How sad."],
    "good": ["I love it.", "A lovely day!", "Great fun."],
}
KINDS = {
    "statement": ["It is late.", "I am here.", "You can go."],
    "question": ["Who are you?", "Is it late?", "Where is it?"],
}


def main() -> None:
    """Train two heads on one encoder, then use both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--output_dir", default="runs/several_tasks")
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    rows = {"mood": MOODS, "kind": KINDS}
    heads = {
        name: {"problem_type": "classification", "labels": list(texts), "pooling": "mean"}
        for name, texts in rows.items()
    }
    model = MinBertForMultiTask.from_pretrained(args.model, tasks=heads)

    tasks = []
    for name, texts in rows.items():
        sentences = [text for group in texts.values() for text in group]
        labels = [number for number, group in enumerate(texts.values()) for _ in group]
        encoded = Dataset.from_dict({**tokenizer(sentences), "labels": labels})
        tasks.append(Task.from_dataset(name, "classification", encoded, encoded))

    arguments = TrainingArguments(
        args.output_dir, num_train_epochs=5, learning_rate=1e-4, report_to="none"
    )
    trainer = MultiTaskTrainer(model, arguments, tasks=tasks, processing_class=tokenizer)
    trainer.train()
    trainer.save_model()

    trained = MinBertForMultiTask.from_pretrained(args.output_dir)
    print(trained.predict("mood", ["What a lovely film!"]))
    print(trained.predict("kind", ["What is this?"]))


if __name__ == "__main__":
    main()
