"""The trainer, in layers, and what it asks for.

``evaluation``, ``method_trainer``, ``mixed_trainer`` and ``multitask`` (each on top of the one
before), ``acceleration`` (of its steps), ``callbacks``, ``checks`` (of rows and arguments before
anything is trained), ``checkpoints`` (what can be resumed), ``pretrained`` (strict loading).
"""
