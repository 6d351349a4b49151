"""Text corpora of a recipe: parsed, tokenized and cut into rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase, TrainingArguments

from datasets_scripts import CorpusData, encode_corpus, make_text_rows
from trainers import PROBLEMS, Masking, TextArguments, TextSource, spread


@dataclass(frozen=True)
class Text:
    """The text of a task, tokenized and cut into rows."""

    splits: dict[str, TextSource]
    masking: Masking | None  # None for next sentences alone
    facts: dict[str, dict[str, Any]]  # by split
    problems: list[str]  # skipped documents with reasons
    fingerprint: str
    commits: dict[str, str]  # of corpora on the Hub
    notes: list[str]  # on the splits


def parse_corpus(
    where: str, corpus: Mapping[str, Any], data_dir: str | None
) -> dict[str, CorpusData]:
    """Check the texts of a recipe."""
    parsed = {}
    for name, keys in corpus.items():
        if not isinstance(keys, dict):
            raise ValueError(  # noqa: TRY004  the value of a user is wrong, not a type in the code
                f"{where}: {name!r}: expected keys and values, as in {{train_file: my.txt}}, "
                f"found {keys!r}"
            )
        parsed[name] = CorpusData.from_recipe(name, keys, data_dir)
    return parsed


def load_text(
    corpora: Mapping[str, CorpusData],
    arguments: TextArguments,
    tokenizer: PreTrainedTokenizerBase,
    problem_type: str,
    args: TrainingArguments,
    *,
    max_length: int,
    num_proc: int | None = None,
) -> Text:
    """Tokenize texts, and cut them into rows."""
    seed = args.seed if args.data_seed is None else args.data_seed
    masking = None
    if PROBLEMS[problem_type].is_masked:
        shares = ("mlm_probability", "mask_replace_prob", "random_replace_prob", "whole_word_mask")
        options = {name: getattr(arguments, name) for name in shares}
        masking = Masking.from_tokenizer(tokenizer, seed=seed, **options)
    encoded = encode_corpus(list(corpora.values()), tokenizer, num_proc=num_proc)
    splits: dict[str, TextSource] = {
        split: make_text_rows(
            documents,
            tokenizer,
            packing=arguments.choose_packing(problem_type),
            max_length=max_length,
            seed=seed,
            short_seq_prob=arguments.short_seq_prob,
            balanced_pairs=arguments.balanced_pairs,
            name=f"{' + '.join(corpora)} ({split})",
        )
        for split, documents in encoded.splits.items()
    }
    facts = {split: rows.describe() for split, rows in splits.items()}  # type: ignore[attr-defined]
    splits["validation"] = spread(splits["validation"], arguments.max_eval_samples)
    return Text(
        splits,
        masking,
        facts,
        encoded.problems,
        encoded.fingerprint,
        encoded.commits,
        encoded.notes,
    )
