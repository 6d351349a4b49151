"""Evaluate sentence embeddings: `python evaluate_embeddings.py CHECKPOINT ...`."""

import sys

from minbert_cli.__main__ import main

if __name__ == "__main__":
    main(["embeddings", *sys.argv[1:]])
