"""The trainer.

``multitask`` is the trainer, on top of ``evaluation``; ``loss_log`` and ``counting`` are its
counters, ``acceleration`` speeds up its steps, ``checks`` validates its input. ``callbacks`` has
early stopping, ``checkpoints`` finds what can be resumed, ``pretrained`` loads strictly.
"""
