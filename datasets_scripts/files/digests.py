"""Hashes of texts, to find equal ones without keeping them in memory."""

import hashlib


def digest_text(text: str) -> int:
    """Hash a text without its white space to a number below 2 ** 64."""
    letters = "".join(text.split())
    return int.from_bytes(hashlib.blake2b(letters.encode(), digest_size=8).digest(), "little")
