"""Tokenization of rows, and the windows of long ones."""
