"""Training methods: each changes how a model is trained, and is off by default.

A method is a subclass of ``Method`` (``base``) in a module of its own: ``r_drop`` and ``smart``
(both in terms of ``regularization``; ``perturbation`` is SMART's search), ``averaging``,
``gradient_surgery`` (with the arithmetic in ``gradient_merging``), ``layers`` (freezing) and
``layer_rates``, ``lr_decay`` and ``threshold``. ``method_arguments`` has their recipe keys and
their order. ``adapters`` (LoRA) changes the model instead of the training.
"""
