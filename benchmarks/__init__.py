"""minBERT beside its peers: speed and memory of the same steps on the same batches."""
