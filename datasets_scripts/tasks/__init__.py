"""The data of a task: keys of a recipe, rows, invalid rows, and draws of rows."""
