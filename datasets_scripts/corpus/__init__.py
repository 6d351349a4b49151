"""Text for pretraining: reading, tokens in the cache, and the rows of every pass."""
