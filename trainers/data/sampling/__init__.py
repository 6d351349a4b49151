"""Which task and which rows a step takes."""
