"""What a recipe says beside ``TrainingArguments``."""

import os
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import torch
from transformers import TrainingArguments

from trainers.data.masking import check_shares
from trainers.data.task_sampling import SamplingArguments
from trainers.methods.gradient_surgery import check_surgery
from trainers.methods.method_arguments import MethodArguments
from trainers.problems import PROBLEMS
from trainers.training.callbacks import AggregateEarlyStopping

# What fine-tuning has from the pre-training before it.
FIXED_IN_CHAIN = (
    "model_name_or_path",
    "output_dir",
    "overwrite_output_dir",
    "resume_from_checkpoint",
)
CARD_KEYS = ("language", "license", "datasets", "tags")
PROBLEM_TYPES = {"mlm": "masked_lm", "nsp": "next_sentence", "mlm_nsp": "pretraining"}


@dataclass
class FastTrainingArguments(TrainingArguments):
    """``TrainingArguments`` whose defaults suit the device; what a user gives wins.

    - ``bf16`` is on where CUDA computes in it: about twice as fast as float32, and weights and
      optimizer stay in float32. It is off beside ``fp16``, and if ``accelerate launch`` was told
      ``--mixed_precision fp16`` or ``fp8``.
    - ``logging_nan_inf_filter`` is off: the filter waits for the device at every step, and a loss
      that is no number should be seen.
    - ``accelerator_config`` has ``non_blocking: true`` on CUDA: without it the copy of every batch
      waits until the device has done all that was asked of it.
    """

    bf16: bool | None = field(  # type: ignore[assignment]  # __post_init__ makes it a bool
        default=None,
        metadata={"help": "Mixed precision in bfloat16; by default where CUDA computes in it."},
    )
    logging_nan_inf_filter: bool = field(
        default=False,
        metadata={"help": "Leave losses that are no numbers out of the logs; waits at every step."},
    )

    def __post_init__(self) -> None:
        for name in ("per_device_train_batch_size", "per_device_eval_batch_size"):
            _check_count(name, getattr(self, name))
        _check_count("gradient_accumulation_steps", self.gradient_accumulation_steps)
        cuda = torch.cuda.is_available() and not self.use_cpu
        if self.bf16 is None:
            launched = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
            free = not self.fp16 and launched in ("no", "bf16")
            # emulated, it would be slower than float32
            self.bf16 = cuda and free and torch.cuda.is_bf16_supported(including_emulation=False)
        config = self.accelerator_config
        if cuda and (config is None or isinstance(config, dict)):
            self.accelerator_config = {"non_blocking": True, **(config or {})}
        super().__post_init__()


def _check_count(name: str, count: int) -> None:
    if count < 1:
        raise ValueError(f"{name}={count}; expected 1 or more")


@dataclass(kw_only=True)
class RunArguments:
    """Flags and keys of both programs.

    Raises:
        ValueError: If there are both a checkpoint and sizes of a new model, or batches without
            tokens.
    """

    model_name_or_path: str | None = field(
        default=None, metadata={"help": "A bert or minbert checkpoint; none for a new model."}
    )
    model_config: dict[str, Any] | None = field(
        default=None, metadata={"help": "Fields of MinBertConfig for a new model."}
    )
    data_dir: str | None = field(
        default=None, metadata={"help": "Folder with the official files of the built-in datasets."}
    )
    max_length: int = field(default=128, metadata={"help": "Tokens of a sequence at most."})
    max_tokens_per_batch: int | None = field(
        default=None,
        metadata={
            "help": "Tokens of a batch at most, instead of a number of rows, for the tasks "
            "without a batch_size of their own."
        },
    )
    early_stopping_patience: int | None = field(
        default=None, metadata={"help": "Evaluations without a better metric before stopping."}
    )
    evaluate_train: bool = field(
        default=True,
        metadata={
            "help": "Evaluate at the end as many training rows, too, as there are validation rows."
        },
    )
    overwrite_output_dir: bool = field(
        default=False, metadata={"help": "Whether the folder may lose another run."}
    )
    card: dict[str, Any] | None = field(
        default=None,
        metadata={
            "help": "Metadata of the model card, as the Hub knows them: language (en), license "
            "(apache-2.0), datasets and tags (lists)."
        },
    )

    def __post_init__(self) -> None:
        if self.model_name_or_path is not None and self.model_config:
            raise ValueError(
                f"model_name_or_path={self.model_name_or_path!r} brings its own sizes; leave it "
                "out, or give --model_config '{}'"
            )
        if self.max_tokens_per_batch is not None and self.max_tokens_per_batch < 1:
            raise ValueError(
                f"max_tokens_per_batch={self.max_tokens_per_batch}; expected 1 or more, or null "
                "for per_device_train_batch_size rows"
            )
        check_card(self.card or {})

    def make_callbacks(self, args: TrainingArguments) -> list[AggregateEarlyStopping]:
        """Make the callback for early stopping, if asked for.

        Raises:
            ValueError: If the patience is no number of evaluations, or no metric is watched.
        """
        patience = self.early_stopping_patience
        if patience is None:
            return []
        if patience < 1:
            raise ValueError(f"early_stopping_patience={patience} must be 1 or more")
        if not args.load_best_model_at_end:
            raise ValueError(
                f"early_stopping_patience={patience} needs load_best_model_at_end: true and a "
                "metric_for_best_model, such as mean"
            )
        return [AggregateEarlyStopping(patience)]


@dataclass(kw_only=True)
class FinetuneArguments(SamplingArguments, MethodArguments, RunArguments):
    """Flags and keys of ``finetune.py``.

    Raises:
        ValueError: If there are no tasks, or as in the other arguments.
    """

    tasks: dict[str, Any] = field(
        metadata={"help": "Task name to its keys; as a flag also names of tasks of the recipe."}
    )
    mode: Literal["finetune", "frozen"] = field(
        default="finetune", metadata={"help": "Train all weights, or only the heads."}
    )
    stop: str = field(
        default="longest",
        metadata={"help": "When an epoch ends: shortest, longest, or a number of steps."},
    )
    gradient_surgery: Literal["pcgrad", "gradvac"] | None = field(
        default=None,
        metadata={"help": "What makes the gradients of mixed tasks get along; none adds them up."},
    )
    exponential_lr_gamma: float | None = field(
        default=None, metadata={"help": "Factor on the learning rate after every epoch."}
    )
    report_examples: int | None = field(
        default=None,
        metadata={
            "help": "Worst errors of a task that report.html quotes; by default 20, and with "
            "push_to_hub 0, which quotes no text."
        },
    )

    def __post_init__(self) -> None:
        check_names("tasks", self.tasks, "{sst: {dataset: sst}}")
        if self.report_examples is not None and self.report_examples < 0:
            raise ValueError(f"report_examples={self.report_examples}; expected 0 or more")
        SamplingArguments.__post_init__(self)
        MethodArguments.__post_init__(self)
        RunArguments.__post_init__(self)
        check_surgery(self.gradient_surgery, self)
        if self.mode == "frozen":
            for name in ("freeze_layers", "unfreeze_layer_every", "lora", "layerwise_lr_decay"):
                if getattr(self, name) is not None:
                    raise ValueError(f"mode='frozen' trains the heads alone; leave {name} out")

    def count_examples(self, args: TrainingArguments) -> int:
        """Count the errors to be quoted; what is published quotes texts only if asked to."""
        if self.report_examples is not None:
            return self.report_examples
        return 0 if args.push_to_hub else 20

    def parse_stop(self) -> Any:
        """Read the stop policy; the sampler checks it."""
        return int(self.stop) if self.stop.isdigit() else self.stop


@dataclass(kw_only=True)
class TextArguments:
    """Keys of a task that learns from text without labels.

    Raises:
        ValueError: If there is no corpus, or a share is out of range.
    """

    corpus: dict[str, Any] = field(
        metadata={"help": "Name to the keys of a text; as a flag also names of the recipe's."}
    )
    packing: Literal["segment_pairs", "full_sentences", "doc_sentences"] | None = field(
        default=None,
        metadata={
            "help": "What a row is; by default segment_pairs with next sentences, else "
            "full_sentences."
        },
    )
    mlm_probability: float = field(default=0.15, metadata={"help": "Share of predicted tokens."})
    mask_replace_prob: float = field(
        default=0.8, metadata={"help": "Share of the predicted tokens that [MASK] hides."}
    )
    random_replace_prob: float = field(
        default=0.1, metadata={"help": "Share of them that a random token hides."}
    )
    whole_word_mask: bool = field(
        default=False, metadata={"help": "Whether all pieces of a word are chosen together."}
    )
    short_seq_prob: float = field(
        default=0.1, metadata={"help": "Share of documents with segment pairs of a random length."}
    )
    balanced: bool = field(
        default=False, metadata={"help": "Whether half of the pairs are random, not more."}
    )
    max_eval_rows: int = field(
        default=4096, metadata={"help": "Rows of held-out text that are evaluated at most."}
    )

    def __post_init__(self) -> None:
        check_names("corpus", self.corpus, "{mine: {train_file: my.txt}}")
        check_shares(self.mlm_probability, self.mask_replace_prob, self.random_replace_prob)
        if not 0 <= self.short_seq_prob <= 1:
            raise ValueError(f"short_seq_prob={self.short_seq_prob} must be in [0, 1]")
        if self.max_eval_rows < 1:
            raise ValueError(f"max_eval_rows={self.max_eval_rows} must be 1 or more")

    def check_unused(self, problem_type: str) -> None:
        """Refuse what would be ignored.

        Raises:
            ValueError: If a key has a value that means nothing for the problem type.
        """
        pairs = self.choose_packing(problem_type) == "segment_pairs"
        masked = PROBLEMS[problem_type].is_masked
        needs = {
            "balanced": (pairs, "packing segment_pairs"),
            "short_seq_prob": (pairs, "packing segment_pairs"),
            "whole_word_mask": (masked, "masked tokens"),
            "mlm_probability": (masked, "masked tokens"),
            "mask_replace_prob": (masked, "masked tokens"),
            "random_replace_prob": (masked, "masked tokens"),
        }
        defaults = {entry.name: entry.default for entry in fields(TextArguments)}
        for name, (is_read, what) in needs.items():
            if not is_read and getattr(self, name) != defaults[name]:
                raise ValueError(
                    f"{name}={getattr(self, name)} means nothing without {what}; leave it out"
                )

    def choose_packing(self, problem_type: str) -> str:
        """Choose what a row is.

        Raises:
            ValueError: If next sentences are to be learnt from rows that have none.
        """
        paired = PROBLEMS[problem_type].is_paired
        packing = self.packing or ("segment_pairs" if paired else "full_sentences")
        if paired and packing != "segment_pairs":
            raise ValueError(
                f"packing={packing!r} has no next sentences, which problem_type {problem_type!r} "
                "learns; take segment_pairs, or masked_lm alone"
            )
        return packing


@dataclass(kw_only=True)
class PretrainArguments(TextArguments, RunArguments):
    """Flags and keys of ``pretrain.py``.

    Raises:
        ValueError: If a flag contradicts another one, or as in the other arguments.
    """

    objective: Literal["mlm", "nsp", "mlm_nsp"] = field(
        default="mlm_nsp",
        metadata={"help": "Masked tokens, next sentences, or both in one pass."},
    )
    model_size: Literal["tiny", "mini", "small", "medium", "base", "large"] | None = field(
        default=None, metadata={"help": "Size of a new model; fields of model_config win."}
    )
    dropout: float | None = field(
        default=None,
        metadata={"help": "Dropout of states and attention; by default that of the model."},
    )
    tokenizer_name_or_path: str | None = field(
        default=None, metadata={"help": "Tokenizer of a new model."}
    )
    train_tokenizer: bool = field(
        default=False, metadata={"help": "Train the WordPiece vocabulary of a new model."}
    )
    vocab_size: int | None = field(
        default=None, metadata={"help": "Tokens of that vocabulary; by default 30,522."}
    )
    cased: bool = field(default=False, metadata={"help": "Whether it keeps upper case."})
    preprocessing_num_workers: int | None = field(
        default=None,
        metadata={"help": "Processes that tokenize; by default all cores for a large text."},
    )
    finetune: dict[str, Any] | None = field(
        default=None,
        metadata={"help": "Go on with finetune.py: {recipe: its recipe, flag: value, ...}."},
    )

    def __post_init__(self) -> None:
        TextArguments.__post_init__(self)
        RunArguments.__post_init__(self)
        self.choose_packing(self.problem_type)
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout} must be in [0, 1)")
        self._check_sources()
        self._check_unused()
        self._check_finetune()

    def _check_sources(self) -> None:
        """Check that there is one source of weights, and one of a vocabulary."""
        start = self.model_name_or_path
        own = ("model_size", "train_tokenizer", "tokenizer_name_or_path")
        if start is not None and (given := [name for name in own if getattr(self, name)]):
            raise ValueError(
                f"model_name_or_path={start!r} brings its sizes and its tokenizer; leave it out "
                f"for a new model, or leave {' and '.join(given)} out"
            )
        if start is None and self.train_tokenizer == (self.tokenizer_name_or_path is not None):
            raise ValueError(
                "a new model needs one vocabulary: give train_tokenizer: true, or "
                "tokenizer_name_or_path, the folder or Hub id of one; or go on from a checkpoint "
                "with model_name_or_path"
            )

    def _check_unused(self) -> None:
        """Refuse what would be ignored."""
        self.check_unused(self.problem_type)
        for name in ("vocab_size", "cased"):
            if getattr(self, name) and not self.train_tokenizer:
                raise ValueError(
                    f"{name}={getattr(self, name)} means nothing without train_tokenizer; leave it "
                    "out"
                )
        if "vocab_size" in (self.model_config or {}):
            raise ValueError("model_config: leave vocab_size out; it is that of the tokenizer")

    def _check_finetune(self) -> None:
        """Check what goes on with fine-tuning, as far as it can be seen."""
        keys = self.finetune
        if keys is None:
            return
        if "recipe" not in keys:
            raise ValueError("finetune: recipe is missing, as in {recipe: recipes/sst.yaml}")
        if fixed := [key for key in keys if key in FIXED_IN_CHAIN]:
            raise ValueError(
                f"finetune: leave {', '.join(fixed)} out; fine-tuning begins with what was "
                "pre-trained, and writes to the folder 'finetuned' in that of the run"
            )

    @property
    def problem_type(self) -> str:
        """Problem type of the only task."""
        return PROBLEM_TYPES[self.objective]


def check_card(card: dict[str, Any]) -> None:
    """Check metadata of a model card.

    Raises:
        ValueError: If a key is unknown, or a value is neither text nor a list of texts.
    """
    for key, value in card.items():
        if key not in CARD_KEYS:
            raise ValueError(f"card: unknown key {key!r}; known keys: {', '.join(CARD_KEYS)}")
        texts = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(text, str) and text for text in texts):
            what = "a text" if key == "license" else "a text or a list of texts"
            raise ValueError(f"card: {key}={value!r} must be {what}, in quotes if YAML reads more")
        if key == "license" and isinstance(value, list):
            raise ValueError(f"card: license={value!r} must be one text, as in apache-2.0")


def check_names(key: str, mapping: dict[Any, Any], example: str) -> None:
    """Check that a mapping out of YAML names something.

    Raises:
        ValueError: If it is empty, or a name is none.
    """
    if not mapping:
        raise ValueError(f"{key} is empty; name at least one, as in {example}")
    if unnamed := [name for name in mapping if not isinstance(name, str)]:
        raise ValueError(f"{key}: {unnamed[0]!r} is no name; put it in quotes")
