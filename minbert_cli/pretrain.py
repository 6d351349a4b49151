"""Pre-train a MinBert on text: masked tokens, next sentences, or both.

    accelerate launch pretrain.py [recipe.yaml] [--flag value ...]

Without arguments it is the quickstart. Flags are the fields of `PretrainArguments` and of
`TrainingArguments`, whose defaults suit the device; they win over the recipe.
"""

import json
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, TrainingArguments, set_seed
from transformers.utils import logging

from datasets_scripts import CorpusData, corpus_texts, train_wordpiece
from minbert_cli.tasks import parse_tasks
from minbert_cli.texts import (
    Text,
    describe_card,
    fit_together,
    load_text,
    load_tokenizer,
    new_config,
    parse_corpus,
    share,
)
from modeling_minbert import (
    MinBertConfig,
    MinBertForMaskedLM,
    MinBertForNSP,
    MinBertForPreTraining,
    MinBertModel,
)
from trainers import (
    FastTrainingArguments,
    FinetuneArguments,
    MultiTaskTrainer,
    PretrainArguments,
    Program,
    RunFacts,
    describe_command,
    describe_recipe,
    evaluate_run,
    load_pretrained,
    named_errors,
    parse_recipe,
    report_run,
    split_argv,
    spread,
    write_card,
    write_results,
)

HERE = Path(__file__).parents[1]
QUICKSTART = HERE / "recipes" / "pretrain_quickstart.yaml"
VOCABULARY = 30522  # that of bert-base-uncased
TASK = "text"  # the only one, under whose name everything is logged
MODELS: dict[str, Any] = {
    "masked_lm": MinBertForMaskedLM,
    "next_sentence": MinBertForNSP,
    "pretraining": MinBertForPreTraining,
}
# Layers and width; one head for 64 of it. Source: Turc et al. 2019, table 1; base and large are
# those of Devlin et al. 2019, section 3.
SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}


@dataclass(frozen=True)
class Run:
    """What a run is made of.

    Args:
        trainer: The trainer, with model and tokenizer.
        text: What it learns from.
        facts: What one must know to repeat it.
        evaluate_train: Whether some training rows are evaluated, too.
    """

    trainer: MultiTaskTrainer
    text: Text
    facts: RunFacts
    evaluate_train: bool


def find_tokenizer(
    arguments: PretrainArguments, corpora: Mapping[str, CorpusData], checkpoint: str | None
) -> PreTrainedTokenizerBase:
    """Load the tokenizer that the arguments name, or train one on the training text.

    Args:
        arguments: The arguments.
        corpora: The texts.
        checkpoint: That with which a run goes on; its vocabulary is that of its weights.
    """
    for flag, path in (
        ("model_name_or_path", arguments.model_name_or_path),
        ("tokenizer_name_or_path", arguments.tokenizer_name_or_path),
        ("resume_from_checkpoint", checkpoint),
    ):
        if path is not None:
            return load_tokenizer(path, flag)
    texts = corpus_texts(list(corpora.values()))
    size = arguments.vocab_size or VOCABULARY
    return train_wordpiece(texts, size, lowercase=not arguments.cased)


def load_model(arguments: PretrainArguments, tokenizer: PreTrainedTokenizerBase) -> Any:
    """Load the encoder of a checkpoint with its heads of pre-training, or make a new one.

    Raises:
        ValueError: If sizes, checkpoint and tokenizer do not fit together.
    """
    kind = MODELS[arguments.problem_type]
    path, dropout = arguments.model_name_or_path, arguments.dropout
    changes: dict[str, Any] = {}
    if dropout is not None:
        changes = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout)
    if path is None:
        layers, width = SIZES[arguments.model_size or "base"]
        sizes = {
            "num_hidden_layers": layers,
            "hidden_size": width,
            "num_attention_heads": width // 64,
            "intermediate_size": 4 * width,
            **(arguments.model_config or {}),
        }
        if tokenizer.pad_token_id is not None:
            changes["pad_token_id"] = tokenizer.pad_token_id  # whose vector stays zero
        model = kind(new_config(sizes, vocab_size=len(tokenizer), **changes))
    else:
        # An encoder may come without these heads, or with those of tasks.
        replaceable = ("cls.", "bert.pooler.")
        changes |= {"tasks": None, "dtype": torch.float32}
        model = load_pretrained(kind, path, replaceable=replaceable, **changes)
        keep_pooler(model, path)
    fit_together(model, tokenizer, path, arguments.max_length)
    return model


def keep_pooler(model: Any, path: str) -> None:
    """Give a model of masked tokens alone the pooler of its checkpoint, if that has one.

    It does not learn, and is saved again: many tasks read it when the model is fine-tuned.
    """
    if model.bert.pooler is not None:
        return
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # what lacks here is no loss
    try:
        encoder = load_pretrained(MinBertModel, path, tasks=None, dtype=torch.float32)
    except ValueError:
        return  # it has no pooler
    finally:
        logging.set_verbosity(verbosity)
    model.bert.pooler = encoder.pooler.requires_grad_(requires_grad=False)


def prepare_run(
    arguments: PretrainArguments,
    training_arguments: TrainingArguments,
    argv: list[str],
    checkpoint: str | None,
) -> Run:
    """Load everything that a run needs; nothing is written to its folder."""
    args = training_arguments
    check_finetuning(arguments, args)
    recipe_path, _ = split_argv(argv, QUICKSTART)
    corpora = parse_corpus("corpus", arguments.corpus, arguments.data_dir)
    callbacks = arguments.make_callbacks(args)
    if arguments.model_name_or_path is not None:
        load_pretrained(MinBertConfig, arguments.model_name_or_path)  # a wrong one fails at once
    set_seed(args.seed)  # new weights are drawn before the Trainer sets it
    tokenizer = share(args, lambda: find_tokenizer(arguments, corpora, checkpoint))
    model = load_model(arguments, tokenizer)
    with args.main_process_first(desc="tokenize the text"):
        text = load_text(
            corpora,
            arguments,
            tokenizer,
            problem_type=arguments.problem_type,
            max_length=arguments.max_length,
            seed=args.seed if args.data_seed is None else args.data_seed,
            num_proc=arguments.preprocessing_num_workers,
        )
    advice = "check the network, log in with `hf auth login`, or train without it"
    with named_errors("push_to_hub", advice) if args.push_to_hub else nullcontext():
        trainer = MultiTaskTrainer(
            model,
            args,
            problem_types={TASK: arguments.problem_type},
            train_dataset={TASK: text.splits["train"]},
            eval_dataset={TASK: text.splits["validation"]},
            masking={TASK: text.masking} if text.masking else None,
            stop="longest",
            max_tokens_per_batch=arguments.max_tokens_per_batch,
            processing_class=tokenizer,
            callbacks=callbacks,
        )
    facts = RunFacts(
        command=describe_command("pretrain.py", argv),
        recipe=describe_recipe(str(recipe_path)),
        model_name_or_path=arguments.model_name_or_path,
        data={TASK: " + ".join(corpora)},
        bad_rows={TASK: text.problems},
        text=text.facts,
        fingerprints={TASK: text.fingerprint},
        card=describe_card(arguments, [data.hub_dataset for data in corpora.values()]),
    )
    return Run(trainer, text, facts, arguments.evaluate_train)


def report(run: Run) -> None:
    """Evaluate the trained model, print the tables, and write results, model card and report."""
    rows = {"validation": run.text.splits["validation"]}
    if run.evaluate_train:
        # as many rows of the training text show how much of it was learnt by heart
        rows = {"train": spread(run.text.splits["train"], len(rows["validation"])), **rows}
    encoded = {TASK: rows}
    results, outputs = evaluate_run(run.trainer, encoded, splits=list(rows))
    if not run.trainer.is_world_process_zero():
        return
    write_results(run.trainer, encoded, results, outputs, run.facts)
    write_card(HERE / "model_card.md", run.trainer, encoded, results, run.facts)
    page = report_run(run.trainer, encoded, outputs)
    for split, found in results.items():
        print(f"\n{split}\n{found.table(run.trainer.problems)}")
    if page is not None:
        print(f"\nreport: {page}")


PROGRAM = Program("pretrain.py", PretrainArguments, QUICKSTART, prepare_run, report)


def describe_finetuning(arguments: PretrainArguments, args: TrainingArguments) -> list[str]:
    """Write the command line of the run that goes on with the trained model.

    Args:
        arguments: Arguments of the pre-training.
        args: Those of its Trainer.
    """
    keys: dict[str, Any] = arguments.finetune or {}
    flags = {
        "data_dir": arguments.data_dir,
        "seed": args.seed,
        "use_cpu": args.use_cpu,
        **{key: value for key, value in keys.items() if key != "recipe"},
        "model_config": {},  # the checkpoint brings its sizes
        "model_name_or_path": args.output_dir,
        "output_dir": f"{args.output_dir}/finetuned",
    }
    words = [str(keys["recipe"])]
    for key, value in flags.items():
        if value is not None:
            words += [f"--{key}", value if isinstance(value, str) else json.dumps(value)]
    return words


def check_finetuning(arguments: PretrainArguments, args: TrainingArguments) -> None:
    """Check the recipe of the fine-tuning before the pre-training.

    Raises:
        ValueError: If it is refused.
        FileNotFoundError: If it is not there.
    """
    if arguments.finetune is None:
        return
    words = describe_finetuning(arguments, args)
    found, _ = parse_recipe((FinetuneArguments, FastTrainingArguments), words)
    parse_tasks(found)


def main(argv: list[str] | None = None) -> None:
    """Pre-train, evaluate, save and, if asked for, push and fine-tune."""
    done = PROGRAM.main(sys.argv[1:] if argv is None else argv)
    if done.arguments.finetune is not None:
        from minbert_cli import finetune

        words = describe_finetuning(done.arguments, done.training_arguments)
        # what was fine-tuned before counts only if it began with these weights
        words += ["--overwrite_output_dir"] if done.trained else ["--resume_from_checkpoint=true"]
        finetune.main(words)


if __name__ == "__main__":
    main()
