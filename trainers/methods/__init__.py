"""Training methods, subclasses of ``Method``: each is off by default."""
