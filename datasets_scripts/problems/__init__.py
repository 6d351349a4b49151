"""The formats of rows, one module for each problem type."""
