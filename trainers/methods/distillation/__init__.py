"""Distillation: students learn from teachers."""
