"""Text for pretraining.

``corpus_data`` (keys of a recipe), ``documents`` and ``sources`` (reading), ``text_builder``,
``tokenized`` and ``encoded_corpus`` (tokens in the cache), ``pairs`` and ``full_sentences``
(planning rows), ``plans`` and ``text_rows`` (rows of every pass).
"""
