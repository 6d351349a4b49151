"""The computations of ``minbert predict``."""
