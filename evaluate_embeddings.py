"""Evaluate sentence embeddings: `python evaluate_embeddings.py CHECKPOINT ...`."""

from minbert_cli.embeddings import main

if __name__ == "__main__":
    main()
