"""Tokenizers of other model types, trained on the text of the tests, and small models of theirs."""

import json
from functools import cache

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import CONFIG_MAPPING

from tests import small_run
from tests.modeling_minbert.test_families import CONFIGS

# What the tokenizers have seen besides the texts of the tests
OTHERS = "how is it so good so bad so so and A first. B"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]


def list_texts():
    """List the texts of the small run."""
    rows = [row for split in ("train", "dev") for row in small_run.make_rows(split)]
    return [text for row in rows for text in row[1:3]] + [OTHERS]


@cache
def make_bpe(kind="Roberta"):
    """Train a byte-level tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=[*SPECIAL, "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(list_texts(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    make = getattr(transformers, f"{kind}Tokenizer")
    return make(vocab=model["vocab"], merges=list(map(tuple, model["merges"])))


@cache
def make_unigram(kind="XLMRoberta"):
    """Train a unigram tokenizer as of SentencePiece."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=SPECIAL, unk_token=SPECIAL[3], show_progress=False
    )
    tokenizer.train_from_iterator(list_texts(), trainer)
    vocabulary = json.loads(tokenizer.to_str())["model"]["vocab"]
    return getattr(transformers, f"{kind}Tokenizer")(vocab=list(map(tuple, vocabulary)))


TOKENIZERS = {"roberta": make_bpe, "xlm-roberta": make_unigram, "modernbert": make_bpe}


def save_start(folder, kind, **sizes):
    """Save a small model of transformers with random weights, and its tokenizer; return this."""
    tokenizer = TOKENIZERS[kind]()
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": 70} | sizes
    config = CONFIGS[kind] | sizes
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind](**config | {"pad_token_id": tokenizer.pad_token_id})
    transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer
