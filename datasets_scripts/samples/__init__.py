"""Generated data, for tests and a first run: ``task_rows`` (tasks) and ``documents`` (text)."""
