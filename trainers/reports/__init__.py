"""The files of a finished run: results, GLUE files, cards and ``report.html``."""
