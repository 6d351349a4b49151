"""The trainer.

``multitask`` is the trainer; ``batches`` builds its sampler, collator and loaders, ``evaluation``
its metrics, ``counters`` its logs; ``acceleration`` speeds up its steps, ``checks`` validates its
input. ``callbacks`` has early stopping, ``checkpoints`` finds what can be resumed, ``pretrained``
loads strictly.
"""
