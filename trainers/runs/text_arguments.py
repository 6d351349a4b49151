"""Flags and recipe keys of training on unlabeled text."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from trainers.data.masking import check_shares
from trainers.options import check_count, option
from trainers.problems import PROBLEMS, ProblemType
from trainers.training.preparation.argument_checks import MAX_WORKERS

from .arguments import RunArguments, check_names

# Keys that fine-tuning takes over from the pretraining before it.
FIXED_IN_CHAIN = (
    "model_name_or_path",
    "output_dir",
    "overwrite_output_dir",
    "revision",
    "resume_from_checkpoint",
)
PROBLEM_TYPES: dict[str, ProblemType] = {
    "mlm": "masked_lm",
    "nsp": "next_sentence",
    "mlm_nsp": "pretraining",
}


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
    short_seq_prob: float = option(0.1, "Share of documents with shorter segment pairs.")
    balanced_pairs: bool = option(False, "Whether exactly half of the pairs are random, not more.")
    max_eval_samples: int = option(4096, "Maximum rows of held-out text to evaluate.")

    def __post_init__(self) -> None:
        check_names("corpus", self.corpus, "{mine: {train_file: my.txt}}")
        check_shares(self.mlm_probability, self.mask_replace_prob, self.random_replace_prob)
        if not 0 <= self.short_seq_prob <= 1:
            raise ValueError(f"short_seq_prob={self.short_seq_prob} must be in [0, 1]")
        if self.max_eval_samples < 1:
            raise ValueError(f"max_eval_samples={self.max_eval_samples} must be 1 or more")

    def check_unused(self, problem_type: str) -> None:
        """Check that no key is set that has no effect for the problem type."""
        pairs = self.choose_packing(problem_type) == "segment_pairs"
        masked = PROBLEMS[problem_type].is_masked
        needs = {
            "balanced_pairs": (pairs, "packing segment_pairs"),
            "short_seq_prob": (pairs, "packing segment_pairs"),
            "whole_word_mask": (masked, "masked tokens"),
            "mlm_probability": (masked, "masked tokens"),
            "mask_replace_prob": (masked, "masked tokens"),
            "random_replace_prob": (masked, "masked tokens"),
        }
        for name, (is_used, what) in needs.items():
            if not is_used and getattr(self, name) != getattr(TextArguments, name):
                raise ValueError(
                    f"{name}={getattr(self, name)} has no effect without {what}; leave it out"
                )

    def choose_packing(self, problem_type: str) -> str:
        """Return how text becomes rows; next sentences need segment pairs."""
        paired = PROBLEMS[problem_type].is_paired
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
    dropout: float | None = option(
        None, "Dropout of hidden states and attention; by default that of the model."
    )
    tokenizer_name_or_path: str | None = option(None, "Tokenizer of a new model.")
    train_tokenizer: bool = option(False, "Train the WordPiece vocabulary of a new model.")
    vocab_size: int | None = option(None, "Size of that vocabulary; by default 30,522.")
    cased: bool = option(False, "Whether the vocabulary is cased.")
    preprocessing_num_workers: int | None = option(
        None, "Processes for tokenization; by default all cores for a large text."
    )
    finetune: dict[str, Any] | None = option(
        None, "Fine-tune afterwards: {recipe: its recipe, flag: value, ...}."
    )

    def __post_init__(self) -> None:
        TextArguments.__post_init__(self)
        RunArguments.__post_init__(self)
        self.choose_packing(self.problem_type)
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be in [0, 1)")
        workers = self.preprocessing_num_workers
        check_count("preprocessing_num_workers", workers, MAX_WORKERS, null="a suitable number")
        self._check_sources()
        self._check_unused()
        self._check_finetune()

    def _check_sources(self) -> None:
        """Check that weights and vocabulary have one source each."""
        start = self.model_name_or_path
        own = ("model_size", "train_tokenizer", "tokenizer_name_or_path")
        if start is not None and (given := [name for name in own if getattr(self, name)]):
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

    def _check_unused(self) -> None:
        """Check that no key is set that would be ignored."""
        self.check_unused(self.problem_type)
        for name in ("vocab_size", "cased"):
            if getattr(self, name) and not self.train_tokenizer:
                raise ValueError(
                    f"{name}={getattr(self, name)} has no effect without train_tokenizer; leave it "
                    "out"
                )
        if "vocab_size" in (self.model_config or {}):
            raise ValueError("model_config: leave vocab_size out; the tokenizer determines it")

    def _check_finetune(self) -> None:
        """Check the keys of the fine-tuning afterwards."""
        keys = self.finetune
        if keys is None:
            return
        if "recipe" not in keys:
            raise ValueError("finetune: recipe is missing, as in {recipe: recipes/sst.yaml}")
        if fixed := [key for key in keys if key in FIXED_IN_CHAIN]:
            raise ValueError(
                f"finetune: leave {', '.join(fixed)} out; fine-tuning starts from the "
                "pretrained model and writes to the folder 'finetuned' inside that of the run"
            )

    @property
    def problem_type(self) -> ProblemType:
        """Problem type of the only task."""
        return PROBLEM_TYPES[self.objective]
