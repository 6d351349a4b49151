"""Tiny models in the cache of the Hub, under the names of real ones."""

import json
from functools import cache
from pathlib import Path

import torch
from transformers import BertConfig, BertForPreTraining, BertTokenizerFast

COMMIT = "0" * 40
WORDS = (
    "a about actor beautiful best book boring bought can capital city cold day do dull eat film "
    "find food france funny garden good great happy help how i in is it learn like love man music "
    "my new not of old on one paris play python rain read river run sad say school script sea see "
    "shop sing sleep song story sun swim talk the they this to town train tree walk warm water "
    "what when where who why wind window woman work world worst write year you"
)


@cache
def make_vocabulary():
    """Return a small vocabulary of words, letters and their continuations."""
    letters = [chr(code) for code in range(33, 127)]
    pieces = [f"##{letter}" for letter in letters if letter.isalnum()]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return dict.fromkeys([*special, *letters, *pieces, *WORDS.split()])


def add_model(cache_folder: Path, hub_id: str) -> Path:
    """Write a tiny BERT with random weights where the Hub's client looks for ``hub_id``."""
    place = cache_folder / f"models--{hub_id.replace('/', '--')}"
    folder = place / "snapshots" / COMMIT
    if folder.exists():
        return folder
    (place / "refs").mkdir(parents=True)
    (place / "refs" / "main").write_text(COMMIT)
    torch.manual_seed(0)
    vocabulary = make_vocabulary()
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    model = BertForPreTraining(config)
    names = {name: number for number, name in enumerate(vocabulary)}
    tokenizer = BertTokenizerFast(vocab=names, do_lower_case=True, model_max_length=512)
    is_sentence_encoder = hub_id.startswith("sentence-transformers/")
    (model.bert if is_sentence_encoder else model).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if is_sentence_encoder:
        _add_pooling(folder)
    return folder


def _add_pooling(folder: Path) -> None:
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
