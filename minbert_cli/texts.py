"""What several programs compose of the packages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from accelerate.utils import broadcast_object_list
from transformers import AutoTokenizer, PreTrainedTokenizerBase, TrainingArguments

from datasets_scripts import CorpusData, encode_corpus, make_text_rows
from modeling_minbert import MinBertConfig, MinBertForMultiTask, MinBertModel
from trainers import Masking, RunArguments, TextArguments, TextSource, load_pretrained, spread

Made = TypeVar("Made")


@dataclass(frozen=True)
class Text:
    """The text of a task, ready to be learnt from.

    Args:
        splits: Rows of the training and the held-out text.
        masking: What chooses the tokens to be predicted; None for next sentences alone.
        facts: What each split holds.
        problems: What was left out of it, and why.
        fingerprint: What tells it from any other text.
    """

    splits: dict[str, TextSource]
    masking: Masking | None
    facts: dict[str, dict[str, Any]]
    problems: list[str]
    fingerprint: str


def parse_corpus(where: str, corpus: Any, data_dir: str | None) -> dict[str, CorpusData]:
    """Check what a recipe says about its texts.

    Raises:
        ValueError: If a key is unknown or a value is refused.
    """
    if not isinstance(corpus, dict):
        raise ValueError(  # noqa: TRY004  the value of a user is wrong, not a type in the code
            f"{where}: corpus={corpus!r}; expected names and keys, as in "
            "{mine: {train_file: my.txt}}"
        )
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
    *,
    problem_type: str,
    max_length: int,
    seed: int,
    num_proc: int | None = None,
) -> Text:
    """Tokenize texts, and cut them into rows.

    Args:
        corpora: The texts.
        arguments: How they are cut and masked.
        tokenizer: Tokenizer of the model.
        problem_type: ``masked_lm``, ``next_sentence`` or ``pretraining``.
        max_length: Tokens of a row at most.
        seed: Seed of the run.
        num_proc: Processes that tokenize.

    Raises:
        ValueError: If a text cannot be read, or makes no rows.
    """
    masking = None
    if problem_type != "next_sentence":
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
            balanced_pairs=arguments.balanced,
            name=f"{' + '.join(corpora)} ({split})",
        )
        for split, documents in encoded.splits.items()
    }
    facts = {split: rows.describe() for split, rows in splits.items()}  # type: ignore[attr-defined]
    splits["validation"] = spread(splits["validation"], arguments.max_eval_rows)
    return Text(splits, masking, facts, encoded.problems, encoded.fingerprint)


def describe_card(arguments: RunArguments, hub_datasets: Sequence[str | None]) -> dict[str, Any]:
    """Collect the metadata of the model card.

    Args:
        arguments: The arguments, whose `card` wins.
        hub_datasets: Names of the data on the Hub; None for data that it does not have.
    """
    datasets = sorted({name for name in hub_datasets if name is not None})
    return ({"datasets": datasets} if datasets else {}) | (arguments.card or {})


def load_tokenizer(path: str, flag: str = "model_name_or_path") -> PreTrainedTokenizerBase:
    """Load the tokenizer of a checkpoint.

    Args:
        path: Folder or Hub id.
        flag: The flag that named it, for messages.

    Raises:
        ValueError: If there is none.
    """
    tokenizer = load_pretrained(AutoTokenizer, path, flag=flag)
    # the first is what AutoTokenizer makes of no files
    if len(tokenizer) <= len(tokenizer.all_special_ids) or not tokenizer.is_fast:
        raise ValueError(f"{flag}={path!r} has no tokenizer; add its tokenizer.json or vocab.txt")
    # Checkpoints of sentence-transformers bake both into tokenizer.json.
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def share(args: TrainingArguments, make: Callable[[], Made]) -> Made:
    """Make something on the first process, and give it to the others.

    Args:
        args: Arguments of the Trainer, which knows the processes.
        make: Makes what can be pickled.
    """
    if args.world_size == 1:
        return make()
    found = [make() if args.process_index == 0 else None]
    made: Any = broadcast_object_list(found)[0]
    return made


def load_encoder(path: str) -> MinBertModel | MinBertForMultiTask:
    """Load what embeds sentences, with its heads if it has tasks.

    Args:
        path: Folder or Hub id of minBERT, BERT or sentence-transformers.

    Raises:
        ValueError: If it cannot be loaded, or has no tokenizer.
    """
    config = load_pretrained(MinBertConfig, path, flag="checkpoint")
    # an encoder that was taken out of a multi-task checkpoint still says which tasks that had
    saved = (config.architectures or [MinBertForMultiTask.__name__])[0]
    has_heads = bool(config.tasks) and saved == MinBertForMultiTask.__name__
    kind = MinBertForMultiTask if has_heads else MinBertModel
    # many encoders come without a pooler, and who has tasks that read one has it
    free = () if has_heads else ("pooler.",)
    model: Any = load_pretrained(kind, path, flag="checkpoint", replaceable=free)
    model.tokenizer = load_tokenizer(path, "checkpoint")
    return model.eval()


def new_config(given: Mapping[str, Any] | None, **more: Any) -> MinBertConfig:
    """Make the configuration of a new model.

    Raises:
        ValueError: If a field is unknown or a value is refused.
    """
    sizes = {**(given or {}), **more}
    known = {entry.name for entry in fields(MinBertConfig)}
    if unknown := sorted(set(sizes) - known):
        raise ValueError(f"model_config: unknown keys {unknown}; known: {sorted(known)}")
    return MinBertConfig(**sizes)


def fit_together(
    model: Any, tokenizer: PreTrainedTokenizerBase, path: str | None, max_length: int
) -> None:
    """Check that model, tokenizer and rows fit together, and tell the tokenizer the positions.

    Raises:
        ValueError: If they do not.
    """
    positions = model.config.max_position_embeddings
    tokenizer.model_max_length = min(tokenizer.model_max_length, positions)
    if len(tokenizer) > model.config.vocab_size:
        raise ValueError(
            f"model_name_or_path={path!r}: the tokenizer has {len(tokenizer)} tokens, but the "
            f"model only {model.config.vocab_size}; take the tokenizer of this model"
        )
    if not 8 <= max_length <= positions:
        raise ValueError(
            f"max_length={max_length} must be from 8 to the {positions} positions of the model"
        )
