"""The trainer, its sampler, metrics, logs and checks, and checkpoints to resume."""
