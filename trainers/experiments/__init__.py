"""Many runs, and one table.

``experiment_arguments`` (what a file of experiments says), ``overrides``, ``search`` and
``planning`` (which runs that makes), ``campaign`` (doing them), ``tables`` and ``table_plot`` (what
they found), ``compare`` (two of them).
"""
