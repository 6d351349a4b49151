"""Problem types that learn from running text: their rows come from the corpus room."""


class CorpusText:
    """Marks a problem type without a format of rows; `make_text_rows` makes its rows."""

    reads_corpus = True
