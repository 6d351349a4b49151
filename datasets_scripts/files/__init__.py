"""Files and the Hub: readers of records, and values of a recipe.

``compression`` and ``readers`` (CSV, TSV, JSON lines, Parquet), ``conll`` and ``squad`` (their own
formats), ``hub`` (datasets on the Hub), ``cache`` (its names and bars), ``splits`` (names),
``values`` (conversion of recipe keys).
"""
