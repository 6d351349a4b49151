"""The computations of ``minbert export``."""
