"""Steps that fine-tuning and pre-training share, before and after training."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from transformers import TrainingArguments, set_seed

from minbert_cli.resources import MODEL_CARD, with_recipe, with_recipe_name
from modeling_minbert import MinBertConfig
from trainers import (
    MultiTaskTrainer,
    Program,
    RunArguments,
    RunFacts,
    describe_command,
    describe_recipe,
    evaluate_run,
    load_pretrained,
    named_errors,
    readable_errors,
    report_run,
    split_argv,
    write_card,
    write_results,
)
from trainers.runs.launch import Done


def run_program(program: Program, argv: Sequence[str]) -> Done:
    """Run a training program whose recipe is given by path or by name."""
    with readable_errors(program.name):
        argv = with_recipe(argv)
    return program.main(argv)


def check_start(arguments: RunArguments, args: TrainingArguments) -> None:
    """Check that the checkpoint can be loaded before any data are, and set the seed."""
    if arguments.model_name_or_path is not None:
        load_pretrained(MinBertConfig, arguments.model_name_or_path)
    set_seed(args.seed)  # new weights are drawn before the Trainer sets the seed


def data_seed(args: TrainingArguments) -> int:
    """Return the seed of everything that is drawn from the data."""
    return args.seed if args.data_seed is None else args.data_seed


def hub_errors(args: TrainingArguments) -> AbstractContextManager[None]:
    """Explain errors of the Hub while the Trainer creates the repository of a run."""
    advice = "check the network, log in with `hf auth login`, or train without it"
    return named_errors("push_to_hub", advice) if args.push_to_hub else nullcontext()


def describe_start(
    program: Program,
    arguments: RunArguments,
    argv: Sequence[str],
    hub_datasets: Sequence[str | None],
) -> dict[str, Any]:
    """Return the fields of `RunFacts` that both programs fill in the same way."""
    recipe, _ = split_argv(argv, program.recipe)
    module = f"minbert_cli.{program.name.split()[-1]}"
    datasets = sorted({name for name in hub_datasets if name is not None})
    return {
        "command": describe_command(module, with_recipe_name(argv)),
        "recipe": describe_recipe(str(recipe)),
        "model_name_or_path": arguments.model_name_or_path,
        "card": ({"datasets": datasets} if datasets else {}) | (arguments.card or {}),
    }


def report_training(
    trainer: MultiTaskTrainer,
    facts: RunFacts,
    encoded: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, Mapping[str, Any]],
    *evidence: Any,
) -> dict[tuple[str, str], Any] | None:
    """Evaluate the model, write and print results; return None on all but the first process."""
    results, outputs = evaluate_run(trainer, rows)
    if not trainer.is_world_process_zero():
        return None
    write_results(trainer, encoded, results, outputs, facts)
    write_card(MODEL_CARD, trainer, encoded, results, facts)
    page = report_run(trainer, encoded, outputs, *evidence)
    for split, result in results.items():
        print(f"\n{split}\n{result.table(trainer.problems)}")
    if page is not None:
        print(f"\nreport: {page}")
    return outputs
