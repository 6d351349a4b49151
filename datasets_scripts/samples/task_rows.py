"""Generate the built-in samples: graded reviews, pairs of questions, and similar scenes."""

import random
from collections.abc import Callable
from typing import Any

from modeling_minbert import unknown

from . import task_words as words

SIZES = {"train": 2000, "validation": 300, "test": 200}
SEED = 20190719
# Words for each part of a scene, and its points of the score, out of 5.
SLOTS = {
    "subject": (words.SUBJECTS, 1.5),
    "action": (words.ACTIONS, 1.5),
    "object": (words.OBJECTS, 1.0),
    "place": (words.PLACES, 1.0),
}

Row = dict[str, Any]


def generate_rows(dataset: str, seed: int = SEED) -> dict[str, list[Row]]:
    """Generate the rows of a sample by split, with sentence1, sentence2 (pairs only) and label."""
    if dataset not in GENERATORS:
        raise ValueError(unknown("sample", dataset, GENERATORS))
    generate = GENERATORS[dataset]
    rng = random.Random(f"{dataset} {seed}")
    splits: dict[str, list[Row]] = {}
    seen: set[str] = set()  # texts of the previous splits
    for split, size in SIZES.items():
        rows: dict[tuple[str, ...], Row] = {}
        while len(rows) < size:
            row = generate(rng)
            texts = tuple(text for key, text in row.items() if key != "label")
            if seen.isdisjoint(texts):
                rows.setdefault(texts, row)
        splits[split] = list(rows.values())
        seen.update(text for texts in rows for text in texts)
    return splits


def _generate_review(rng: random.Random) -> Row:
    """Generate a review of one or two judgments, whose grade is their mean."""
    grade = rng.choice(range(-2, 3))
    opening = rng.choice(words.OPENINGS).format(genre=rng.choice(words.GENRES))
    first_aspect, second_aspect = rng.sample(words.ASPECTS, 2)
    if rng.random() < 0.5:
        text = _judge(rng, first_aspect, grade)
    else:
        gap = rng.choice([gap for gap in (-2, -1, 0, 1, 2) if abs(grade) + abs(gap) <= 2])
        first = _judge(rng, first_aspect, grade + gap)
        second = _judge(rng, second_aspect, grade - gap)
        text = f"{first}, {'but' if gap else 'and'} {second}"
    text = f"{opening}{text}."
    return {"sentence1": text[0].upper() + text[1:], "label": grade + 2}


def _judge(rng: random.Random, aspect: str, strength: int) -> str:
    """Judge an aspect with a given strength."""
    form = rng.choice(("adjective", "adverb", "verb", "turn"))
    if form == "verb":
        return f"{rng.choice(words.VIEWERS)} {rng.choice(words.VERBS[strength])} the {aspect}"
    adjective = rng.choice(words.ADJECTIVES[strength])
    if form == "adverb":
        adverbs = words.EMPHASES if abs(strength) == 2 else words.HEDGES
        adjective = f"{rng.choice(adverbs)} {adjective}"
    elif form == "turn":
        adjective = _turn(rng, strength)
    return f"the {aspect} is {adjective}"


def _turn(rng: random.Random, strength: int) -> str:
    """Express a strength by modifying milder words: "very weak", "not good", "neither good nor"."""
    if strength == 0:
        good, bad = rng.choice(words.ADJECTIVES[1]), rng.choice(words.ADJECTIVES[-1])
        return f"neither {good} nor {bad}"
    if abs(strength) == 2:
        adjective = rng.choice(words.ADJECTIVES[strength // 2])
        return f"{rng.choice(words.INTENSIFIERS)} {adjective}"
    return f"{rng.choice(words.NEGATIONS)} {rng.choice(words.ADJECTIVES[-strength])}"


def _generate_questions(rng: random.Random) -> Row:
    """Generate two questions; unless they are paraphrases, they share topic or kind."""
    is_paraphrase = rng.random() < 0.5
    topics = rng.sample(range(len(words.TOPICS)), 2)
    kinds = rng.sample(range(len(words.QUESTIONS)), 2)
    differs = "" if is_paraphrase else rng.choice(("topic", "kind"))
    first = _ask(rng, topics[0], kinds[0])
    second = _ask(rng, topics[differs == "topic"], kinds[differs == "kind"])
    while second == first:
        second = _ask(rng, topics[0], kinds[0])
    return {"sentence1": first, "sentence2": second, "label": int(is_paraphrase)}


def _ask(rng: random.Random, topic: int, kind: int) -> str:
    template = rng.choice(words.QUESTIONS[kind])
    return rng.choice(words.ASKERS) + template.format(topic=rng.choice(words.TOPICS[topic]))


def _generate_scenes(rng: random.Random) -> Row:
    """Generate two scenes with the score of the meaning that they share, out of 5."""
    kept = set(rng.sample(list(SLOTS), rng.randrange(len(SLOTS) + 1)))
    first: dict[str, str] = {}
    second: dict[str, str] = {}
    for slot, (synonyms, _) in SLOTS.items():
        meaning, other = rng.sample(synonyms, 2)
        first[slot] = rng.choice(meaning)
        second[slot] = rng.choice(meaning if slot in kept else other)
    templates = rng.sample(words.SCENES, 2)
    return {
        "sentence1": _describe(templates[0], first),
        "sentence2": _describe(templates[1], second),
        "label": sum(SLOTS[slot][1] for slot in kept),
    }


def _describe(template: str, scene: dict[str, str]) -> str:
    article = "an" if scene["object"][0] in "aeiou" else "a"
    return template.format(a_object=f"{article} {scene['object']}", **scene)


GENERATORS: dict[str, Callable[[random.Random], Row]] = {
    "sample_sst": _generate_review,
    "sample_quora": _generate_questions,
    "sample_sts": _generate_scenes,
}
