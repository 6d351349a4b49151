"""From rows to batches: what a step of training reads.

``tasks`` (what a recipe says about training a task), ``task_dataset`` (rows of all tasks), ``rows``
(their arrays), ``masking`` and ``text`` (learning from text without labels), ``collators`` and
``shapes`` (rows to batches), ``task_sampling``, ``samplers``, ``streams`` and ``token_streams``
(which rows of which task at which step), ``batches`` (all these for a run).
"""
