"""Pre-train a MinBert on text: masked tokens, next sentences, or both.

    minbert pretrain [RECIPE] [--flag value ...]
    accelerate launch -m minbert_cli.pretrain [RECIPE] [--flag value ...]

RECIPE is a YAML file or the name of a packaged recipe, such as mlm; the default is a quickstart.
Flags are the fields of `PretrainArguments` and of `TrainingArguments`, whose defaults suit the
device; they override the recipe.
"""

import importlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, TrainingArguments, set_seed

from datasets_scripts import TrainingTexts, train_wordpiece
from minbert_cli.checkpoints import (
    check_row_length,
    choose_length,
    fit_together,
    load_config,
    load_pretrained,
    load_tokenizer,
    new_config,
)
from minbert_cli.recipe_tasks import RunSize, choose_arguments, choose_loss_as_best
from minbert_cli.recipes import RECIPES
from minbert_cli.run import Given, Run, open_run, report, share
from minbert_cli.text_tasks import PretrainArguments, RecipeText
from modeling_minbert import (
    MinBertConfig,
    MinBertForMaskedLM,
    MinBertForNSP,
    MinBertForPreTraining,
    MinBertModel,
)
from trainers import Task, check_arguments, make_problems, spread

QUICKSTART = RECIPES / "pretrain_quickstart.yaml"
VOCABULARY = 30522  # as bert-base-uncased
TASK = "text"  # name of the only task in logs and results
MODELS: dict[str, Any] = {
    "masked_lm": MinBertForMaskedLM,
    "next_sentence": MinBertForNSP,
    "pretraining": MinBertForPreTraining,
}
# Layers and hidden size, with a head for every 64 units. Source: Turc et al. 2019, table 1; for
# base and large Devlin et al. 2019, section 3.
SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}


def pretrain(given: Given = (), *, is_command: bool = False, is_dry: bool = False) -> Run:
    """Pre-train by a recipe: read it, load text and model, train, evaluate, and write the results.

    Arguments, result and errors are those of `finetune`.
    """
    with open_run("pretrain", QUICKSTART, given, is_command=is_command, is_dry=is_dry) as run:
        arguments, args = run.arguments, run.args
        recipe = check_recipe(arguments, args, load_config(arguments, find_sizes(arguments)))

        set_seed(args.seed)  # new weights are drawn before the Trainer sets the seed
        tokenizer = share(args, lambda: find_tokenizer(arguments, recipe, run.checkpoint))
        model = load_model(arguments, tokenizer)
        length = choose_length(arguments, model.config)
        with args.main_process_first(desc="tokenize the text"):
            text = recipe.load(tokenizer, args, length)
        train, validation = text.splits["train"], text.splits["validation"]

        is_new, width = arguments.model_name_or_path is None, model.config.hidden_size
        size = RunSize(width, is_new, len(train), 1, len(validation), length)
        choices = choose_arguments(args, size)
        if text.masking is not None:
            choices += choose_loss_as_best(args, f"{TASK}_mlm_loss")

        task = Task(TASK, recipe.problem_type, train, validation, masking=text.masking)
        run.make_trainer(model, [task], processing_class=tokenizer)
        facts = run.make_facts(
            recipe.hub_datasets,
            text.source.commits,
            data={TASK: recipe.source},
            bad_rows={TASK: text.source.describe_skipped(quotes=not args.push_to_hub)},
            text=text.facts,
            notes={TASK: text.notes},
            choices=choices,
            fingerprints={TASK: text.source.fingerprint},
        )
        rows = {"validation": validation}
        if arguments.evaluate_train:
            rows = {"train": spread(train, len(validation)), **rows}
        run.start({TASK: rows}, facts)
        if not is_dry:
            run.train()
            report(run)
            run.finish()
    return run


def find_tokenizer(
    arguments: PretrainArguments, recipe: RecipeText, checkpoint: str | None
) -> PreTrainedTokenizerBase:
    """Load a tokenizer by the arguments, or train one on the training text."""
    for flag, path, revision in (
        ("model_name_or_path", arguments.model_name_or_path, arguments.revision),
        ("resume_from_checkpoint", checkpoint, None),  # its files may have changed since
        ("tokenizer_name_or_path", arguments.tokenizer_name_or_path, None),
    ):
        if path is not None:
            return load_tokenizer(path, flag, revision)
    texts = TrainingTexts(list(recipe.corpora.values()))
    size = arguments.vocab_size or VOCABULARY
    new_config(find_sizes(arguments), vocab_size=size)  # refuses what memory cannot hold
    return train_wordpiece(texts, size, lowercase=not arguments.cased)


def load_model(arguments: PretrainArguments, tokenizer: PreTrainedTokenizerBase) -> Any:
    """Load a checkpoint with its pre-training heads, or create a new model."""
    kind = MODELS[arguments.problem_type]
    path, dropout = arguments.model_name_or_path, arguments.dropout
    changes: dict[str, Any] = {}  # of the configuration
    if dropout is not None:
        changes = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout)
    if path is None:
        if tokenizer.pad_token_id is not None:
            changes["pad_token_id"] = tokenizer.pad_token_id  # its embedding stays zero
        model = kind(new_config(find_sizes(arguments), vocab_size=len(tokenizer), **changes))
    else:
        # The checkpoint may lack these heads, or have heads of tasks.
        replaceable = ("cls.", "bert.pooler.")
        options: Any = {"tasks": None, "dtype": torch.float32, "revision": arguments.revision}
        model = load_pretrained(kind, path, replaceable=replaceable, **changes, **options)
        if model.bert.pooler is None:  # kept frozen for a fine-tuning, as the objective needs none
            with suppress(ValueError):  # the checkpoint has no pooler
                encoder = load_pretrained(MinBertModel, path, **options)
                model.bert.pooler = encoder.pooler.requires_grad_(requires_grad=False)
    fit_together(model, tokenizer, path)
    return model


def find_sizes(arguments: PretrainArguments) -> dict[str, Any]:
    """Return the sizes of a new model by the arguments."""
    layers, width = SIZES[arguments.model_size or "base"]
    sizes = {"num_hidden_layers": layers, "hidden_size": width, "intermediate_size": 4 * width}
    return sizes | {"num_attention_heads": width // 64} | (arguments.model_config or {})


def check_recipe(
    arguments: PretrainArguments, args: TrainingArguments, start: MinBertConfig | None
) -> RecipeText:
    """Check all that does not depend on text or weights; return the only task.

    ``start`` is the configuration of the encoder; None if it is not known yet.
    """
    corpora = arguments.read_corpora(arguments.data_dir)
    check_arguments(args, make_problems({TASK: arguments.problem_type}))
    arguments.make_callbacks(args)
    if start is not None:
        has_pairs = arguments.choose_packing(arguments.problem_type) == "segment_pairs"
        check_row_length(start, choose_length(arguments, start), has_pairs=has_pairs)
    return RecipeText(arguments.problem_type, corpora, arguments)


def main(argv: Sequence[str]) -> None:
    """Pre-train, evaluate, save and, if requested, push."""
    pretrain(argv, is_command=True)


if __name__ == "__main__":
    # the command; not imported above, since it knows all programs
    importlib.import_module("minbert_cli.__main__").main(["pretrain", *sys.argv[1:]])
