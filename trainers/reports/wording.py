"""Numbers with their nouns, and times."""


def count(number: float, noun: str) -> str:
    """Write a number with its noun, as in "1 epoch" and "2.5 epochs"."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:.4g}"
    return f"{shown} {noun}" + "s" * (number != 1)


def format_time(seconds: float) -> str:
    """Format a time, as in ``14 s``, ``3 min 05 s`` and ``1 h 25 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02} min"


def format_duration(seconds: float) -> str:
    """Format a time to the minute, as in ``1 h 25 min``."""
    if seconds < 60:
        return "less than 1 min"
    hours, minutes = divmod(round(seconds / 60), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours:,} h {minutes} min" if minutes else f"{hours:,} h"
