"""What fine-tuning and pre-training share: tasks, texts and the course of a run."""
