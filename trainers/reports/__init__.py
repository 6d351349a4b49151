"""The files of a finished run.

``results`` (metrics, predictions), ``glue`` (files for its server), ``model_card``, ``run_card``;
and ``report.html``: ``evidence`` (its numbers), ``curves``, ``plots`` and ``page``.
"""
