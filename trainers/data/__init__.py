"""From rows to batches.

``rows`` (rows as flat arrays), ``task_dataset`` (rows of all tasks), ``tasks`` (training settings
of a task), ``masking`` and ``text`` (unlabeled text), ``collators`` and ``shapes`` (rows to
batches), ``task_sampling`` and ``task_orders`` (the task of a step), ``streams`` and
``token_streams`` (the rows of a step), ``samplers`` (both), ``batches`` (sampler and collator of a
run).
"""
