"""One run of a program: its arguments, its recipe and its folder.

``arguments`` and ``text_arguments`` (flags and keys), ``recipes`` and ``recipe_files`` (YAML plus
flags), ``run_facts`` (settings, data and code), ``run_folder`` (``run.json`` and the lock),
``processes`` (logs and threads), ``launch`` (from the arguments to the results).
"""
