"""Small texts for the tests of pre-training data."""

import random
from itertools import pairwise

import datasets
import numpy as np

from datasets_scripts import CorpusData, TextRows, encode_corpus
from datasets_scripts.corpus import TokenizedDocuments
from tests.small_run import make_tokenizer

FEATURES = datasets.Features(
    {
        "sentences": datasets.List(datasets.List(datasets.Value("uint16"))),
        "digest": datasets.Value("uint64"),
    }
)


BERT = make_tokenizer([])


def draw_documents(seed, documents=30, sentences=(1, 12), tokens=(1, 9)):
    """Documents of sentences of tokens; each token is unique and identifies its place."""
    rng = random.Random(seed)
    token = 10
    drawn = []
    for _ in range(documents):
        document = []
        for _ in range(rng.randint(*sentences)):
            size = rng.randint(*tokens)
            document.append(list(range(token, token + size)))
            token += size
        drawn.append(document)
    return drawn


def to_tokenized(documents):
    columns = {"sentences": documents, "digest": range(len(documents))}
    rows = datasets.Dataset.from_dict(columns, features=FEATURES)
    return TokenizedDocuments(rows, np.arange(len(rows)), "train")


def to_rows(documents, packing="segment_pairs", max_length=32, seed=0, tokenizer=BERT, **settings):
    return TextRows(
        to_tokenized(documents),
        tokenizer,
        packing=packing,
        max_length=max_length,
        seed=seed,
        name="mine",
        **settings,
    )


def read_all(rows, number=0):
    """Every row of a pass as a list of ids."""
    found = rows.read(number, np.arange(len(rows)))
    ends = np.cumsum(found["lengths"])[:-1]
    return [part.tolist() for part in np.split(found["input_ids"], ends)]


def write(folder, **files):
    """Write files; ``train_txt="..."`` becomes train.txt."""
    for name, text in files.items():
        path = folder / name.replace("_", ".", 1)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def encode(folder, tokenizer, **keys):
    """Tokenize the corpus of some keys; files are in the folder."""
    if any("file" in key for key in keys):
        keys = {"data_dir": str(folder), **keys}
    data = CorpusData.from_recipe("mine", keys)
    return encode_corpus([data], tokenizer)


def decode(documents, tokenizer):
    """Documents as lists of sentences."""
    decoded = []
    for number in range(len(documents)):
        offsets = documents.offsets(number).tolist()
        decoded.append(
            [tokenizer.decode(documents.tokens(number, *span)) for span in pairwise(offsets)]
        )
    return decoded
