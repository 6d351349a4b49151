"""The built-in samples: small generated data sets, for a first try without any download.

``sample_sst`` has graded reviews, ``sample_quora`` pairs of questions that may be paraphrases,
``sample_sts`` pairs of scenes with the score of what they share, and ``sample_text`` short reports
of a day's work for pretraining. No text of a split occurs in another one, and held-out texts
consist of words that occur in training. In ``sample_text`` every sentence shows the theme of its
document, and held-out documents tell of other pairs of people.
"""

import gzip
import json
from pathlib import Path
from typing import Any

SAMPLES = ("sample_sst", "sample_quora", "sample_sts", "sample_text")


def read_sample(name: str) -> dict[str, list[Any]]:
    """Read a sample of `SAMPLES` by split.

    Returns:
        Rows with ``sentence1``, ``sentence2`` (pairs only) and ``label``; of ``sample_text`` the
        documents, one sentence per line.
    """
    path = Path(__file__).parent / f"{name}.json.gz"
    return dict(json.loads(gzip.decompress(path.read_bytes())))
