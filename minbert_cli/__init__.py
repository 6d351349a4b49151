"""The programs of minBERT: fine-tuning, pre-training, prediction, export and experiments."""
