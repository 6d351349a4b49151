"""Speed and memory of minBERT and its peers on the same batches."""
