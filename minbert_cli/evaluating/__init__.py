"""The computations of ``minbert embeddings``."""
