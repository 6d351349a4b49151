"""One run: what it was told, and its folder.

``arguments`` and ``recipes`` (a YAML file plus flags), ``recipe_files`` (that file), ``run_folder``
(what is where, and who may write), ``launch`` (from the arguments to the end).
"""
