"""Files and the Hub: readers of records, and values of a recipe."""
