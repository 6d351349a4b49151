"""Names of the splits of a task."""

MAIN_SPLITS = ("train", "validation", "test")
# Names that datasets on the Hub use for our splits; the first one present wins.
HUB_NAMES = {
    "train": ("train",),
    "validation": ("validation", "dev", "valid", "validation_matched"),
    "test": ("test", "test_matched"),
    "validation_mismatched": ("validation_mismatched",),
    "test_mismatched": ("test_mismatched",),
}


def is_test(split: str) -> bool:
    """Return whether the rows of a split may be unlabeled: ``test``, ``test_mismatched``."""
    return split.partition("_")[0] == "test"
