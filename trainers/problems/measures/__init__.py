"""Functions of predictions, without models and tasks.

``scores``, ``embeddings``, ``entities`` and ``squad`` compute metrics, ``answers`` chooses spans,
and ``analysis`` summarizes predictions for reports.
"""
