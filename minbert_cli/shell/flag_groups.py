"""The order in which the help of the programs with recipes shows their flags.

A test requires every flag of our own in a group; those of `TrainingArguments` may be left out.
"""

from typing import NamedTuple


class Group(NamedTuple):
    """Flags of one purpose."""

    title: str
    common: tuple[str, ...]  # in `--help`
    more: tuple[str, ...] = ()  # only in `--help all`


MODEL = ("model_name_or_path", "data_dir", "max_length")
MORE_MODEL = ("revision", "model_config")
TRAINING = ("learning_rate", "num_train_epochs", "per_device_train_batch_size", "max_steps")
MORE_TRAINING = (
    *("gradient_accumulation_steps", "max_tokens_per_batch", "warmup_steps", "weight_decay"),
    *("lr_scheduler_type", "label_smoothing_factor", "bf16", "fp16", "data_seed"),
)
EVALUATION = (
    *("eval_strategy", "eval_steps", "metric_for_best_model", "early_stopping_patience"),
    "save_total_limit",
)
MORE_EVALUATION = (
    *("per_device_eval_batch_size", "save_strategy", "save_steps", "load_best_model_at_end"),
    *("evaluate_train", "logging_steps", "logging_nan_inf_filter"),
)
OUTPUT = (
    *("output_dir", "overwrite_output_dir", "resume_from_checkpoint", "smoke_test"),
    *("push_to_hub", "hub_model_id", "verbose"),
)

GROUPS = {
    "finetune": (
        Group("model and data", ("tasks", *MODEL), MORE_MODEL),
        Group(
            "training",
            (*TRAINING, "seed", "use_cpu"),
            (
                *("head_learning_rate", *MORE_TRAINING, "steps_per_epoch"),
                *("task_sampling", "sampling_temperature", "sampling_cap", "sampling_weights"),
            ),
        ),
        Group("evaluation and saving", EVALUATION, MORE_EVALUATION),
        Group(
            "methods",
            (
                *("freeze_encoder", "lora", "layerwise_lr_decay", "weight_averaging", "r_drop"),
                *("smart", "gradient_surgery", "teacher"),
            ),
            (
                *("freeze_layers", "unfreeze_layer_every", "layerwise_lr_decay_embeddings"),
                *("averaging_decay", "averaging_start", "exponential_lr_gamma"),
                *("distillation_alpha", "distillation_temperature", "calibrate"),
            ),
        ),
        Group("output", OUTPUT, ("report_examples", "card")),
    ),
    "pretrain": (
        Group(
            "model and data",
            ("corpus", *MODEL, "model_size", "train_tokenizer", "tokenizer_name_or_path"),
            (
                *(*MORE_MODEL, "vocab_size", "cased", "dropout", "packing", "short_seq_prob"),
                *("balanced_pairs", "preprocessing_num_workers"),
            ),
        ),
        Group("training", (*TRAINING, "seed", "use_cpu"), MORE_TRAINING),
        Group("evaluation and saving", EVALUATION, (*MORE_EVALUATION, "max_eval_samples")),
        Group(
            "methods",
            ("objective", "mlm_probability", "whole_word_mask"),
            ("mask_replace_prob", "random_replace_prob"),
        ),
        Group("output", (*OUTPUT, "finetune"), ("card",)),
    ),
    "experiments": (
        Group("runs", ("rows", "base", "overrides", "seeds", "processes")),
        Group(
            "output",
            ("output_dir", "overwrite_output_dir", "keep_checkpoints"),
        ),
        Group("before a campaign", ("dry_run", "estimate", "smoke_test")),
        Group("compare", ("resamples", "seed", "html")),
    ),
}
