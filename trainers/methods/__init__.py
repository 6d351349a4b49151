"""Training methods, one subclass of ``Method`` per module: each is off by default."""
