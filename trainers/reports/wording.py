"""Numbers with their nouns."""


def count(number: float, noun: str) -> str:
    """Write a number with its noun, as in "1 epoch" and "2.5 epochs"."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:.4g}"
    return f"{shown} {noun}" + "s" * (number != 1)
