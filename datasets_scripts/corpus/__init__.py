"""Text for pretraining: sources, documents, tokens and rows."""
