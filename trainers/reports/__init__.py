"""What a run leaves behind.

``results`` (numbers and files), ``predictions`` and ``glue`` (in the formats of others),
``model_card`` and ``run_card``; and ``report.html``: ``evidence`` (its numbers), ``analysis``,
``curves``, ``plots`` and ``page``.
"""
