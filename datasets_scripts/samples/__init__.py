"""Generated data sets, for tests and a first run."""
