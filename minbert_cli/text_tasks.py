"""Tasks that learn from text without labels: keys of recipes, and text, tokenized and in rows."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

from transformers import PreTrainedTokenizerBase, TrainingArguments

from datasets_scripts import CorpusData, EncodedCorpus, TextRows, encode_corpus
from datasets_scripts.checking import Count, check_keys, errors_of, option
from modeling_minbert import TASKS
from modeling_minbert.heads import ProblemType
from trainers import Masking, TaskTraining, TextSource, spread
from trainers.data.masking import check_shares
from trainers.training.checks import BelowOne

from .arguments import RunArguments, check_names
from .data_notes import describe_unknown

PROBLEM_TYPES: dict[str, ProblemType] = {
    "mlm": "masked_lm",
    "nsp": "next_sentence",
    "mlm_nsp": "pretraining",
}
# Keys of tasks that predict masked tokens.
MASKING = ("whole_word_mask", "mlm_probability", "mask_replace_prob", "random_replace_prob")
MEASURED_DOCUMENTS = 1_000  # evenly spread, whose tokens are counted


@dataclass(kw_only=True)
class TextArguments:
    """Keys of a task that learns from unlabeled text."""

    corpus: dict[str, Any] = field(
        metadata={"help": "Keys of each text by name; as a flag also names of texts of the recipe."}
    )
    packing: Literal["segment_pairs", "full_sentences", "doc_sentences"] | None = option(
        None,
        "How text becomes rows; by default segment_pairs with next sentences, else full_sentences.",
    )
    mlm_probability: float = option(0.15, "Share of predicted tokens.")
    mask_replace_prob: float = option(0.8, "Share of the predicted tokens replaced by [MASK].")
    random_replace_prob: float = option(0.1, "Share of them replaced by a random token.")
    whole_word_mask: bool = option(False, "Whether to mask whole words.")
    balanced_pairs: bool = option(False, "Whether exactly half of the pairs are random, not more.")
    max_eval_samples: Count = option(4096, "Maximum rows of held-out text to evaluate.")

    def __post_init__(self) -> None:
        check_names("corpus", self.corpus, "{mine: {train_file: my.txt}}")
        check_shares(self.mlm_probability, self.mask_replace_prob, self.random_replace_prob)

    def read_corpora(self, data_dir: str | None) -> dict[str, CorpusData]:
        """Check the keys of the texts; ``data_dir`` is the folder of the built-in datasets."""
        texts = self.corpus.items()
        return {name: CorpusData.from_recipe(name, keys, data_dir) for name, keys in texts}

    def check_unused(self, problem_type: str) -> None:
        """Check that no key is set that has no effect for the problem type."""
        missing: dict[str, str] = {}  # what keys need, by key
        if self.choose_packing(problem_type) != "segment_pairs":
            missing["balanced_pairs"] = "packing segment_pairs"
        if not TASKS[problem_type].predicts_masked_tokens:
            missing |= dict.fromkeys(MASKING, "masked tokens")
        for name, what in missing.items():
            value = getattr(self, name)
            if value != getattr(TextArguments, name):
                raise ValueError(f"{name}={value} has no effect without {what}; leave it out")

    def choose_packing(self, problem_type: str) -> str:
        """Return how text becomes rows; next sentences need segment pairs."""
        paired = TASKS[problem_type].predicts_next_sentence
        packing = self.packing or ("segment_pairs" if paired else "full_sentences")
        if paired and packing != "segment_pairs":
            raise ValueError(
                f"packing={packing!r} has no next sentences, which problem_type {problem_type!r} "
                "needs; use segment_pairs, or masked_lm alone"
            )
        return packing


@dataclass(kw_only=True)
class PretrainArguments(TextArguments, RunArguments):
    """Flags and recipe keys of pretraining."""

    replaced_keys: ClassVar[dict[str, tuple[str, ...]]] = {
        "model_name_or_path": (
            *("model_config", "revision", "model_size", "tokenizer_name_or_path"),
            *("train_tokenizer", "vocab_size", "cased"),
        )
    }

    objective: Literal["mlm", "nsp", "mlm_nsp"] = option(
        "mlm_nsp", "Masked tokens, next sentences, or both in one forward pass."
    )
    model_size: Literal["tiny", "mini", "small", "medium", "base", "large"] | None = option(
        None, "Size of a new model; model_config overrides it."
    )
    dropout: BelowOne | None = option(
        None, "Dropout of hidden states and attention; by default that of the model."
    )
    tokenizer_name_or_path: str | None = option(None, "Tokenizer of a new model.")
    train_tokenizer: bool = option(False, "Train the WordPiece vocabulary of a new model.")
    vocab_size: Count | None = option(None, "Size of that vocabulary; by default 30,522.")
    cased: bool = option(False, "Whether the vocabulary is cased.")

    def __post_init__(self) -> None:
        TextArguments.__post_init__(self)
        RunArguments.__post_init__(self)
        self.check_unused(self.problem_type)
        start = self.model_name_or_path
        owned = ("model_size", "train_tokenizer", "tokenizer_name_or_path")
        if start is not None and (given := [name for name in owned if getattr(self, name)]):
            raise ValueError(
                f"model_name_or_path={start!r} has its own sizes and tokenizer; leave it out "
                f"for a new model, or leave {' and '.join(given)} out"
            )
        if start is None and self.train_tokenizer == (self.tokenizer_name_or_path is not None):
            raise ValueError(
                "a new model needs one vocabulary: give train_tokenizer: true, or "
                "tokenizer_name_or_path, the folder or Hub id of one; or start from a checkpoint "
                "with model_name_or_path"
            )
        for name in ("vocab_size", "cased"):
            if (value := getattr(self, name)) and not self.train_tokenizer:
                raise ValueError(
                    f"{name}={value} has no effect without train_tokenizer; leave it out"
                )
        if "vocab_size" in (self.model_config or {}):
            raise ValueError("model_config: leave vocab_size out; the tokenizer determines it")

    @property
    def problem_type(self) -> ProblemType:
        """Problem type of the only task."""
        return PROBLEM_TYPES[self.objective]


class LoadedText(NamedTuple):
    """The text of a task, tokenized and cut into rows."""

    splits: dict[str, TextSource]
    masking: Masking | None  # None for next sentences alone
    facts: dict[str, dict[str, Any]]  # by split
    notes: list[str]
    source: EncodedCorpus


@dataclass(frozen=True)
class RecipeText:
    """A task of a recipe that learns from text without labels."""

    problem_type: ProblemType
    corpora: dict[str, CorpusData]
    arguments: TextArguments
    training: TaskTraining = field(default_factory=TaskTraining)
    metrics: ClassVar[tuple[str, ...]] = ()
    in_glue: ClassVar[bool] = False

    @classmethod
    def from_recipe(cls, name: str, keys: dict[str, Any], data_dir: str | None) -> "RecipeText":
        """Check the keys of a task."""
        where, kind = f"task {name!r}", keys["problem_type"]
        own = {key: value for key, value in keys.items() if key != "problem_type"}
        text, training = check_keys(where, own, TextArguments, TaskTraining)
        with errors_of(where):
            arguments = TextArguments(**{"corpus": {}, **text})
            arguments.check_unused(kind)
            task_training = TaskTraining(**training)
        return cls(kind, arguments.read_corpora(data_dir), arguments, task_training)

    @property
    def source(self) -> str:
        """Name of the data."""
        return " + ".join(self.corpora)

    @property
    def hub_datasets(self) -> list[str | None]:
        """Hub names or folders of the texts; None for files."""
        return [data.fetched for data in self.corpora.values()]

    def load(
        self, tokenizer: PreTrainedTokenizerBase, args: TrainingArguments, max_length: int
    ) -> LoadedText:
        """Tokenize the texts, and cut them into rows."""
        seed = args.seed if args.data_seed is None else args.data_seed
        masking = None
        if TASKS[self.problem_type].predicts_masked_tokens:
            options = {name: getattr(self.arguments, name) for name in MASKING}
            masking = Masking.from_tokenizer(tokenizer, seed=seed, **options)
        encoded = encode_corpus(list(self.corpora.values()), tokenizer)
        rows = {
            split: TextRows(
                documents,
                tokenizer,
                packing=self.arguments.choose_packing(self.problem_type),
                max_length=max_length,
                seed=seed,
                balanced_pairs=self.arguments.balanced_pairs,
                name=f"{self.source} ({split})",
            )
            for split, documents in encoded.splits.items()
        }

        # how well the vocabulary fits the training text, by some of its documents
        train = encoded.splits["train"]
        unknown = total = 0
        for number in range(0, len(train), -(-len(train) // MEASURED_DOCUMENTS)):
            tokens = train.tokens(number, 0, int(train.offsets(number)[-1]))
            unknown += int((tokens == tokenizer.unk_token_id).sum())
            total += len(tokens)
        notes = describe_unknown(tokenizer.unk_token, unknown, total)
        facts = {split: split_rows.describe() for split, split_rows in rows.items()}
        validation = spread(rows["validation"], self.arguments.max_eval_samples)
        splits = {"train": rows["train"], "validation": validation}
        return LoadedText(splits, masking, facts, notes, encoded)
