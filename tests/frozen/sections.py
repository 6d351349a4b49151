"""All sections of the frozen outcomes, each a file in ``data/``."""

from tests.frozen import commands, learning, messages, vectors
from tests.frozen.outcomes import Case

SECTIONS: dict[str, dict[str, Case]] = {
    "help": commands.HELP,
    "keys": commands.KEYS,
    "files": commands.FILES,
    "problems": learning.PROBLEMS,
    "losses": learning.LOSSES,
    "methods": learning.METHOD_CASES,
    "messages": messages.MESSAGES,
    "vectors": vectors.VECTORS,
}
# The rest of these sections is compared only by the slow tests.
SLOW = {"masked_lm", "next_sentence", "onnx", "onnx in int8"}
FAST = {"methods": (*learning.FAST, "resumed")}


def find_missing(section: str, case: str) -> str | None:
    """Return what this machine lacks for a case."""
    return vectors.MISSING.get(case) if section == "vectors" else None


def is_slow(section: str, case: str) -> bool:
    """Return whether a case takes long."""
    return case in SLOW or (section in FAST and case not in FAST[section])
