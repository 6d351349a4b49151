"""Text corpora of a recipe: parsed, tokenized and cut into rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase, TrainingArguments

from datasets_scripts import CorpusData, EncodedCorpus, TextRows, encode_corpus
from minbert_cli.data_notes import describe_unknown
from minbert_cli.text_tasks import MASKING, TextArguments
from modeling_minbert import TASKS
from trainers import Masking, TextSource, spread

MEASURED_DOCUMENTS = 1_000  # evenly spread, whose tokens are counted


@dataclass(frozen=True)
class Text:
    """The text of a task, tokenized and cut into rows."""

    splits: dict[str, TextSource]
    masking: Masking | None  # None for next sentences alone
    facts: dict[str, dict[str, Any]]  # by split
    notes: list[str]
    source: EncodedCorpus


def load_text(
    corpora: Mapping[str, CorpusData],
    arguments: TextArguments,
    tokenizer: PreTrainedTokenizerBase,
    problem_type: str,
    args: TrainingArguments,
    *,
    max_length: int,
) -> Text:
    """Tokenize texts, and cut them into rows."""
    seed = args.seed if args.data_seed is None else args.data_seed
    masking = None
    if TASKS[problem_type].predicts_masked_tokens:
        options = {name: getattr(arguments, name) for name in MASKING}
        masking = Masking.from_tokenizer(tokenizer, seed=seed, **options)
    encoded = encode_corpus(list(corpora.values()), tokenizer)
    rows = {
        split: TextRows(
            documents,
            tokenizer,
            packing=arguments.choose_packing(problem_type),
            max_length=max_length,
            seed=seed,
            balanced_pairs=arguments.balanced_pairs,
            name=f"{' + '.join(corpora)} ({split})",
        )
        for split, documents in encoded.splits.items()
    }

    # how well the vocabulary fits the training text, by some of its documents
    train = encoded.splits["train"]
    counts = np.zeros(len(tokenizer), np.int64)
    for number in range(0, len(train), -(-len(train) // MEASURED_DOCUMENTS)):
        tokens = train.tokens(number, 0, int(train.offsets(number)[-1]))
        counts += np.bincount(tokens, minlength=len(counts))
    token: Any = tokenizer.unk_token
    unknown = 0 if token is None else int(counts[tokenizer.convert_tokens_to_ids(token)])
    notes = describe_unknown(token, unknown, int(counts.sum()))
    facts = {split: split_rows.describe() for split, split_rows in rows.items()}
    validation = spread(rows["validation"], arguments.max_eval_samples)
    splits = {"train": rows["train"], "validation": validation}
    return Text(splits, masking, facts, notes, encoded)
