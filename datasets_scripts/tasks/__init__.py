"""The data of a task.

``task_data`` (keys of a recipe), ``building`` and ``loading`` (rows from files, the Hub or
samples), ``invalid_rows`` (their tolerance and report), ``sampling`` (draws of rows).
"""
