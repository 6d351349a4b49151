"""Embed sentences, search them by meaning, and find the most similar pairs.

python examples/search.py [--model sentence-transformers/all-MiniLM-L6-v2]
"""

import argparse

from modeling_minbert import MinBertModel
from sentence_vectors import paraphrase_mining, semantic_search

SENTENCES = (
    "A man is eating food.",
    "Somebody has lunch.",
    "The river is cold.",
    "Swim only where the water is warm.",
    "The old town has a good school.",
    "Children learn to read there.",
)


def main() -> None:
    """Print the best hits of a query, and similar pairs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--query", default="Who is hungry?")
    args = parser.parse_args()

    model = MinBertModel.from_pretrained(args.model)
    vectors = model.encode(SENTENCES)

    hits = semantic_search(model.encode([args.query]), vectors, top_k=3)
    print(f"best answers to {args.query!r}:")
    for number, score in zip(hits.indices[0].tolist(), hits.scores[0].tolist(), strict=True):
        print(f"  {score:.3f}  {SENTENCES[number]}")

    pairs = paraphrase_mining(vectors, max_pairs=2)
    print("most similar pairs:")
    for score, first, second in zip(*map(list, pairs), strict=True):
        print(f"  {score:.3f}  {SENTENCES[first]} | {SENTENCES[second]}")


if __name__ == "__main__":
    main()
