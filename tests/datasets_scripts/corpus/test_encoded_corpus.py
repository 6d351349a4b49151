"""`encode_corpus`: tokens on disk, held-out documents, skipped documents, and the cache."""

import json
import logging
import os
import pickle
import random

import datasets
import numpy as np
import pytest

from datasets_scripts import CorpusData, TrainingTexts, encode_corpus, train_wordpiece
from datasets_scripts.corpus import held_out
from tests.datasets_scripts.corpus.corpora import decode, encode, write
from tests.small_run import write_hub
from tests.small_tokenizers import make_bpe

WORDS = ["sea", "ship", "port", "crane", "sails", "waits", "loads", "the", "a", "old"]
PARTS = [" ".join(random.Random(n).choices(WORDS, k=3 + n % 5)) for n in range(90)]
DOCUMENTS = [[f"{text}." for text in PARTS[n : n + 3]] for n in range(0, 90, 3)]
TEXT = "\n\n".join("\n".join(sentences) for sentences in DOCUMENTS)
FILES = {"train_file": "train.txt", "validation_file": "dev.txt"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Keep tokens in a folder of the test."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece([*PARTS, "."], 100)


def encode_both(folder, tokenizer, **keys):
    """Encode the corpus; return training and held-out documents as texts."""
    splits = encode(folder, tokenizer, **keys).splits
    return [decode(splits[name], tokenizer) for name in ("train", "validation")]


def encode_two(folder, tokenizer, *corpora):
    parsed = [
        CorpusData.from_recipe(f"c{number}", {"data_dir": str(folder), **keys})
        for number, keys in enumerate(corpora)
    ]
    return encode_corpus(parsed, tokenizer)


def test_documents_become_the_tokens_of_their_sentences(tmp_path, tokenizer):
    write(tmp_path, train_txt=TEXT, dev_txt="sea")
    asked = pickle.loads(pickle.dumps(tokenizer))  # noqa: S301  (our own object)
    asked(["sea", "a ship"], padding="max_length", truncation=True, max_length=4)  # is ignored

    train = encode(tmp_path, asked, **FILES).splits["train"]

    assert len(train) == 30
    for number, sentences in enumerate(DOCUMENTS):
        ids = tokenizer(sentences, add_special_tokens=False)["input_ids"]
        joined = [token for sentence in ids for token in sentence]
        assert np.diff(train.offsets(number)).tolist() == list(map(len, ids))
        assert train.tokens(number, 0, len(joined)).tolist() == joined
        assert train.tokens(number, 2, 5).tolist() == joined[2:5]


def test_words_after_the_first_sentence_are_tokens_with_their_space(tmp_path):
    write(tmp_path, train_txt="the garden\nthe garden", dev_txt="a")
    train = encode(tmp_path, make_bpe(), **FILES, documents="file").splits["train"]
    ids = make_bpe()("the garden the garden", add_special_tokens=False)["input_ids"]
    assert train.tokens(0, 0, len(ids)).tolist() == ids


def test_texts_that_spell_special_tokens_are_texts(tmp_path, tokenizer):
    write(tmp_path, train_txt="the [SEP] a [MASK]\n\nsea", dev_txt="sea")

    train = encode(tmp_path, tokenizer, **FILES).splits["train"]

    first = train.tokens(0, 0, int(train.offsets(0)[-1])).tolist()
    assert not {tokenizer.sep_token_id, tokenizer.mask_token_id} & set(first)


# Held-out documents


def test_held_out_documents_are_not_learnt(tmp_path, tokenizer):
    write(tmp_path, train_txt=TEXT, bad_jsonl='{"text": "more"}\n{"text": 5}\n')

    train, validation = encode_both(
        tmp_path, tokenizer, train_file="train.txt", validation_share=0.2
    )

    numbers = held_out(0.2)
    held = {next(numbers) for _ in range(6)}
    assert validation == [DOCUMENTS[number] for number in sorted(held)]
    assert train == [DOCUMENTS[number] for number in range(30) if number not in held]
    # nor are they in a vocabulary
    keys = {"train_file": "train.txt", "validation_share": 0.2, "data_dir": str(tmp_path)}
    more = {"train_file": "bad.jsonl", "validation_share": 0, "data_dir": str(tmp_path)}
    corpora = [CorpusData.from_recipe("a", keys), CorpusData.from_recipe("b", more)]
    texts = TrainingTexts(corpora, others=["first"])
    expected = ["first", *map(" ".join, train), "more"]
    assert [" ".join(text.split()) for text in texts] == expected
    assert list(texts) == list(texts)


def test_of_few_documents_one_is_held_out(tmp_path, tokenizer):
    write(tmp_path, train_txt="sea\n\nship\n\nport", one_txt="crane", dev_txt="port")

    train, held = encode_both(tmp_path, tokenizer, train_file="train.txt")
    assert (len(train), len(held)) == (2, 1)
    # not of a corpus without a share
    second = {"train_file": "train.txt", "validation_share": 0}
    splits = encode_two(tmp_path, tokenizer, {"train_file": "one.txt"}, second).splits
    assert decode(splits["validation"], tokenizer) == [["crane"]]
    for file, share in (("one.txt", 0.1), ("train.txt", 0)):
        with pytest.raises(ValueError, match=r"corpus 'mine': no document of . is held out; give"):
            encode(tmp_path, tokenizer, train_file=file, validation_share=share)


# Several sources


def test_sentences_of_a_task_are_a_text(tmp_path):
    data = CorpusData.from_recipe("mine", {"dataset": "sample_quora"})
    tokenizer = train_wordpiece(TrainingTexts([data]), 800)

    both = encode_both(tmp_path, tokenizer, dataset="sample_quora")

    train, validation = ({str(document) for document in documents} for documents in both)
    assert len(train) == len(both[0]) > 1000  # each sentence once
    assert train.isdisjoint(validation)

    header = "id\tsentence1\tsentence2\tis_duplicate\n"
    for split, parts in {"train": PARTS[:45], "dev": PARTS[45:]}.items():
        lines = "".join(f"r\t{text}\t{text}\t1\n" for text in parts)
        (tmp_path / f"quora-{split}.csv").write_text(f"{header}r\tsea\t\t1\n{lines}")
    keys = {"dataset": "quora", "data_dir": str(tmp_path), "max_invalid_fraction": 0.1}
    reasons = [row.reason for row in encode(tmp_path, tokenizer, **keys).bad_rows]
    assert reasons == ["empty text in column 'sentence2' (id r)"] * 2


# The cache


def stamp(folder):
    return sorted(path.stat().st_mtime_ns for path in folder.rglob("*.arrow"))


@pytest.mark.parametrize("changed", [None, "share", "file", "tokenizer", "sentences", "max"])
def test_tokens_are_made_once_and_anew_after_a_change(tmp_path, tokenizer, changed):
    write(tmp_path, train_txt=TEXT)
    keys = {"train_file": "train.txt", "validation_share": 0.2}
    encode(tmp_path, tokenizer, **keys)
    before = stamp(tmp_path)

    if changed == "file":
        write(tmp_path, train_txt=TEXT.upper())
        os.utime(tmp_path / "train.txt", ns=(1, 1))
    if changed == "tokenizer":
        tokenizer = train_wordpiece([*PARTS, ".", "tide tide"], 100)
    keys |= {
        "share": {"validation_share": 0.4},
        "sentences": {"sentences": "line"},
        "max": {"max_documents": 20},
    }.get(changed, {})
    encode(tmp_path, tokenizer, **keys)

    if changed in (None, "share"):
        assert stamp(tmp_path) == before
    else:
        assert len(stamp(tmp_path)) == 2


# What is left out


def test_documents_that_cannot_be_used_are_named(tmp_path, tokenizer, caplog):
    lines = [json.dumps({"text": text}) for text in PARTS[:30]]
    lines[3], lines[20], lines[25] = '{"text": 5}', "5", '{"text": " "}'
    write(tmp_path, train_jsonl="\n\n".join(lines), dev_txt="sea")
    caplog.set_level(logging.WARNING)
    keys = {"train_file": "train.jsonl", "validation_file": "dev.txt"}

    encoded = encode(tmp_path, tokenizer, max_invalid_fraction=0.1, **keys)

    path = tmp_path / "train.jsonl"
    assert encoded.describe_skipped(quotes=True) == [
        f"{path}:7: column 'text' holds 5, not text",
        f"{path}:41: not a JSON object",
        "1 documents without a token",
    ]
    hidden = "see the log of the run for the reason"
    assert encoded.describe_skipped(quotes=False)[0] == f"{path}:7: {hidden}"
    assert len(encoded.splits["train"]) == 27
    assert "corpus 'mine': skipped 2 invalid rows" in caplog.text
    with pytest.raises(ValueError, match=r"train\.jsonl: 2 of 30 rows .* line 7: column 'text'"):
        encode(tmp_path, tokenizer, **keys)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n \n", r"a\.txt: there are no documents"),
        ("\u200b", "corpus 'mine': no training document is left"),
        ("sea\n\nship", "no training document is left, since 2 equal held-out ones; add"),
    ],
)
def test_a_text_without_documents_is_refused(tmp_path, tokenizer, text, message):
    write(tmp_path, a_txt=text, dev_txt="ship\n\n\nsea\n")

    with pytest.raises(ValueError, match=message):
        encode(tmp_path, tokenizer, train_file="a.txt", validation_file="dev.txt")


def test_documents_that_are_held_out_elsewhere_are_not_learnt(tmp_path, tokenizer, caplog):
    # other white space, and other case, which the tokens do not have
    again = ["\t".join(document).upper() for document in DOCUMENTS[3:9]]
    write(tmp_path, a_txt=TEXT, b_txt="\n\n\n".join([*again, "a new ship"]))
    write(tmp_path, dev_txt="\n\n".join(map("\n".join, DOCUMENTS[20:22])))

    encoded = encode_two(
        tmp_path,
        tokenizer,
        {"train_file": "a.txt", "validation_share": 0.5},
        {"train_file": "b.txt", "validation_file": "dev.txt", "sentences": "line"},
    )

    drawn = set(held_out(0.5, 30))
    held = {" ".join(DOCUMENTS[number]) for number in (*drawn, 20, 21)}
    everything = list(map(" ".join, (*DOCUMENTS, *DOCUMENTS[3:9], ["a new ship"])))
    train, validation = (
        list(map(" ".join, decode(encoded.splits[name], tokenizer)))
        for name in ("train", "validation")
    )
    assert set(validation) == held
    assert train == [text for text in everything if text not in held]
    left_out = len(everything) - len(drawn) - len(train)
    assert left_out > len(drawn & set(range(3, 9))) > 0
    assert encoded.others == [f"{left_out} training documents that equal held-out ones"]
    assert encoded.others[0] in caplog.text


# The Hub, with a local folder in the same layout in its place


def write_texts(folder, **splits):
    columns = {name: {"id": range(len(one)), "body": one} for name, one in splits.items()}
    return write_hub(folder, **columns)


@pytest.mark.parametrize("streaming", [False, True])
def test_rows_of_the_hub_are_documents(tmp_path, tokenizer, streaming):
    hub = tmp_path / "hub"
    write_texts(hub, train=["a sea. the ship.", "port", None], dev=["crane"])
    keys = {"hub_id": str(hub), "text_column": "body", "max_invalid_fraction": 0.5}

    encoded = encode(tmp_path, tokenizer, streaming=streaming, **keys)

    assert decode(encoded.splits["train"], tokenizer) == [["a sea.", "the ship."], ["port"]]
    assert decode(encoded.splits["validation"], tokenizer) == [["crane"]]
    (skipped,) = encoded.describe_skipped(quotes=True)
    assert skipped == f"{hub}:train:3: column 'body' holds None, not text"
    stored = {path.name for path in (tmp_path / "cache").rglob("*.arrow")}
    assert any("hub" in name for name in stored) is not streaming
    with pytest.raises(ValueError, match=r"has a split 'dev', so validation_share=0\.3 has no e"):
        encode(tmp_path, tokenizer, streaming=streaming, validation_share=0.3, **keys)
    # another dataset of the same name
    write_texts(hub, train=["port", "crane"], dev=["ship"])
    train, _ = encode_both(tmp_path, tokenizer, streaming=streaming, **keys)
    assert train == [["port"], ["crane"]]


@pytest.mark.parametrize("streaming", [False, True])
def test_what_is_missing_on_the_hub_is_named(tmp_path, tokenizer, streaming, caplog):
    keys = {"hub_id": str(tmp_path / "hub"), "streaming": streaming}
    write_texts(tmp_path / "hub", train=["sea", "port"], held=["ship"])
    encode(tmp_path, tokenizer, text_column="body", **keys)
    assert "held out, and these splits are not read: held" in caplog.text
    with pytest.raises(ValueError, match=r"has no column 'text'; its columns: \['id', 'body'\]"):
        encode(tmp_path, tokenizer, **keys)

    (path,) = tmp_path.rglob("train-*.parquet")
    path.rename(path.with_name("test-00000-of-00001.parquet"))
    with pytest.raises(ValueError, match="has no split 'train'; its splits: test"):
        encode(tmp_path, tokenizer, **keys)


# Fingerprints


def test_the_fingerprint_depends_on_the_text(tmp_path, tokenizer):
    write(tmp_path, train_txt=TEXT, dev_txt="port")
    first = encode(tmp_path, tokenizer, **FILES).fingerprint
    os.utime(tmp_path / "train.txt", ns=(1, 1))
    assert encode(tmp_path, tokenizer, **FILES).fingerprint == first

    reverse = "\n\n".join(reversed(TEXT.split("\n\n")))
    for train, dev in ((TEXT.replace("sea", "tea", 1), "port"), (reverse, "port"), (TEXT, "crane")):
        write(tmp_path, train_txt=train, dev_txt=dev)
        assert encode(tmp_path, tokenizer, **FILES).fingerprint != first
