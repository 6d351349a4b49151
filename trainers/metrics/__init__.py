"""What outputs are worth: numbers per task and over all tasks.

``task_metrics`` (of every type of task, and the aggregates), ``metric_classes`` (those of
scikit-learn and scipy for the library evaluate), ``scores`` (of many draws of rows), ``embeddings``
(of vectors), ``tagging`` (of tags), ``answers`` and ``squad_metrics`` (of answers to questions).
"""
