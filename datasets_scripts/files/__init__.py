"""Files and the Hub: readers of records, the builder of rows, and values of a recipe.

``compression`` and ``readers`` (CSV, TSV, JSON lines, Parquet), ``conll`` and ``squad`` (their own
formats), ``hub`` (datasets on the Hub), ``builders`` (rows kept in the cache), ``splits`` (names),
``values`` (conversion of recipe keys), ``progress`` (bars).
"""
