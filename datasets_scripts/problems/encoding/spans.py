"""Where the windows of a long text begin and end."""

Span = tuple[int, int]


def cut_windows(length: int, room: int, doc_stride: int) -> list[Span]:
    """Cut a text every ``doc_stride`` tokens: first and last (exclusive) of each window."""
    step = min(room, doc_stride)
    starts = range(0, max(1, length - room + step), step)
    return [(first, min(first + room, length)) for first in starts]
