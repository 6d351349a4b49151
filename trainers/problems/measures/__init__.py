"""Functions of predictions, without models and tasks: metrics, answers, summaries."""
