"""Generate the built-in text: short reports of a day's work, for a first pretraining.

Each document is about one of twelve themes. Every sentence mentions the place or the worker of the
theme, and one of two names, so that most words can be predicted from their context, and segments of
one document be told from segments of two. Hours and steps of the work are in order. Held-out
documents combine themes with other pairs of names than training documents; fewer than one in four
of their sentences occurs in training.
"""

import random

from . import document_words as words

SIZES = {"train": 2400, "validation": 200}  # documents
SEED = 20190719


def generate_documents(seed: int = SEED) -> dict[str, list[str]]:
    """Generate the documents by split, of ten to sixteen sentences, one per line."""
    rng = random.Random(f"sample_text {seed}")
    seen: set[tuple[str, frozenset[str]]] = set()  # themes with their names
    splits: dict[str, list[str]] = {}
    for split, size in SIZES.items():
        documents: list[str] = []
        while len(documents) < size:
            chief, helper = rng.sample(words.NAMES, 2)
            place, worker, *steps = rng.choice(words.THEMES)
            facts = {"place": place, "worker": worker, "chief": chief, "helper": helper}
            facts["town"] = rng.choice(words.TOWNS)
            subject = (place, frozenset((chief, helper)))
            if subject not in seen:
                seen.add(subject)
                documents.append("\n".join(_tell(rng, steps, facts)))
        splits[split] = documents
    return splits


def _tell(rng: random.Random, steps: list[str], facts: dict[str, str]) -> list[str]:
    """Write four to six steps of the work, with remarks on some of them."""
    told = sorted(rng.sample(range(len(steps)), rng.randint(4, len(steps))))
    # at least ten sentences: two opening, two closing, and six steps and remarks
    remarked = set(rng.sample(told, rng.randint(6 - len(told), len(told))))
    start = rng.randrange(len(words.HOURS) - len(told) + 1)
    sentences = [_fill(rng, ways, facts) for ways in words.OPENINGS]
    for hour, number in enumerate(told, start):
        verb, thing = steps[number].split()
        sentences.append(
            _fill(rng, words.EVENTS, facts, verb=verb, thing=thing, hour=words.HOURS[hour])
        )
        if number in remarked:
            sentences.append(_fill(rng, words.REMARKS, facts, thing=thing))
    return sentences + [_fill(rng, ways, facts) for ways in words.CLOSINGS]


def _fill(rng: random.Random, ways: tuple[str, ...], facts: dict[str, str], **details: str) -> str:
    """Fill one of several templates with the facts of the document, and draw the rest."""
    return rng.choice(ways).format(
        **facts,
        **details,
        weather=rng.choice(words.WEATHERS),
        day=rng.choice(words.DAYS),
        manner=rng.choice(words.MANNERS),
        quality=rng.choice(words.QUALITIES),
    )
