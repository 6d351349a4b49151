"""Steps that fine-tuning and pre-training share, before and after training."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset
from transformers import TrainingArguments

from minbert_cli.arguments import RunArguments
from minbert_cli.checkpoints import find_commit
from minbert_cli.console import print_text
from minbert_cli.launch import Done, Given, Program
from minbert_cli.recipe import split_argv
from minbert_cli.recipe_kinds import check_program
from minbert_cli.resources import MODEL_CARD, with_recipe, with_recipe_name
from minbert_cli.run_folder import describe_command, describe_recipe
from trainers import (
    GlueFile,
    LastStep,
    MultiTaskTrainer,
    RunFacts,
    Task,
    evaluate_run,
    missing_files,
    named_errors,
    readable_errors,
    report_run,
    write_card,
    write_label_issues,
    write_results,
    write_submission,
    write_tables,
)
from trainers.files import find_inner
from trainers.problems.base import Problem
from trainers.reports.results import Results


@dataclass(frozen=True)
class Run:
    """A run that is ready to be trained."""

    trainer: MultiTaskTrainer
    encoded: dict[str, dict[str, Any]]  # rows by task and split
    facts: RunFacts
    evaluate_train: bool
    texts: dict[str, Dataset] = field(default_factory=dict)  # labeled validation rows, not encoded
    tables: dict[tuple[str, str], Dataset] = field(default_factory=dict)  # rows, by task and split
    quoted_errors: int = 0  # in the report, for each task
    glue_files: dict[tuple[str, str], GlueFile] = field(default_factory=dict)  # by task and split

    def rows_to_evaluate(self) -> dict[str, dict[str, Any]]:
        """Select the held-out rows and, to show overfitting, the same number of training rows."""
        selected = {}
        for task, splits in self.encoded.items():
            selected[task] = {split: rows for split, rows in splits.items() if split != "train"}
            if self.evaluate_train:
                most, problem = len(splits["validation"]), self.trainer.problems[task]
                selected[task]["train"] = problem.choose_rows(splits["train"], most)
        return selected


def run_program(program: Program, argv: Sequence[str]) -> Done:
    """Run a training program whose recipe is given by path or by name."""
    with readable_errors(program.name):
        argv = with_recipe(argv)
        check_program(argv, program.name.split()[-1])
    return program.main(argv)


def make_trainer(
    arguments: RunArguments,
    args: TrainingArguments,
    model: Any,
    tasks: Sequence[Task],
    **options: Any,
) -> MultiTaskTrainer:
    """Create the trainer; explain errors of the Hub while it creates the repository of the run."""
    options["callbacks"] = [*options.get("callbacks", ()), LastStep()]
    advice = "check the network, log in with `hf auth login`, or train without it"
    with named_errors("push_to_hub", advice) if args.push_to_hub else nullcontext():
        return MultiTaskTrainer(
            model, args, tasks, max_tokens_per_batch=arguments.max_tokens_per_batch, **options
        )


def describe_start(
    program: Program,
    arguments: RunArguments,
    given: Given,
    hub_datasets: Sequence[str | None],
    token: str | None,
    commits: Mapping[str, str | None],
) -> dict[str, Any]:
    """Return the fields of `RunFacts` that both programs fill in the same way.

    ``commits`` are those of the data on the Hub, None for what is not there.
    """
    name = program.name.split()[-1]
    recipe: Any = given
    if isinstance(given, Mapping):
        command = f"from minbert_cli.{name} import {name}; {name}(recipe)"
    else:
        recipe, _ = split_argv(given, program.recipe)
        command = describe_command(f"minbert_cli.{name}", with_recipe_name(given), token)
    path = arguments.model_name_or_path
    known = {"model_name_or_path": find_commit(path, arguments.revision), **commits}
    datasets = sorted({name for name in hub_datasets if name is not None})
    return {
        "command": command,
        "recipe": describe_recipe(recipe, token),
        "model_name_or_path": path,
        "commits": {name: commit for name, commit in known.items() if commit is not None},
        "card": ({"datasets": datasets} if datasets else {}) | (arguments.card or {}),
    }


def report(run: Run) -> None:
    """Evaluate the trained model; on the first process, write and print the results."""
    trainer, encoded = run.trainer, run.encoded
    results, outputs = evaluate_run(trainer, run.rows_to_evaluate())
    if not trainer.is_world_process_zero():
        return
    write_results(trainer, encoded, results, outputs, run.facts)
    quotes = run.quoted_errors > 0
    folder = str(trainer.args.output_dir)
    write_tables(folder, trainer.problems, run.tables, outputs, quotes=quotes)
    issues = write_label_issues(folder, trainer.problems, run.texts, outputs, quotes=quotes)
    write_card(MODEL_CARD, trainer, encoded, results, run.facts)
    page = report_run(trainer, encoded, outputs, run.texts, run.quoted_errors)
    print_text(f"\n{describe_results(results, trainer.problems)}")
    if issues:
        print("\nlabels that may be wrong", *issues, sep="\n")
    if fitted := describe_fits(trainer.problems):
        print_text(f"\n{fitted}")
    print(f"\nmodel: {folder}", *([f"report: {page}"] if page is not None else ()), sep="\n")
    archive = write_submission(folder, run.glue_files, encoded, outputs)
    if archive is not None:
        missing = ", ".join(missing_files(archive))
        print(f"GLUE server: {archive}" + (f"; it also needs {missing}" if missing else ""))
    print(f"next: {advise(run)}")


def advise(run: Run) -> str:
    """Return a command that uses the model."""
    wrapped: Any = run.trainer.model
    model: Any = find_inner(wrapped)
    folder = run.trainer.args.output_dir
    for name, problem in run.trainer.problems.items():
        if name not in (model.config.tasks or {}) or model.config.task(name).is_pretraining:
            continue
        if getattr(model.config.task(name), "words", None) == "given":
            return f"minbert predict {folder} --task {name} --file WORDS.conll"
        if problem.has_labels:
            texts = " ".join(f'"{text}"' for text in model.config.task(name).example_texts)
            return f"minbert predict {folder} --task {name} {texts}"
        return f"minbert predict {folder} --embed vectors.npy --file TEXTS"
    return f"minbert finetune RECIPE --model_name_or_path {folder}"


def describe_fits(problems: Mapping[str, Problem[Any]]) -> str:
    """Show the temperatures and thresholds that were fitted after training, a line each."""
    return "\n".join(
        f"{task}: {what}: {note}"
        for task, problem in problems.items()
        for what, note in problem.notes.items()
    )


def describe_results(results: Mapping[str, Results], problems: Mapping[str, Problem[Any]]) -> str:
    """Show the table of each split; the rows that were trained on come last."""
    tables = {
        split: result.table(problems)
        for split, result in sorted(results.items(), key=lambda item: item[0] == "train")
    }
    titles = {"train": "train (as many of the rows that were trained on)"}
    return "\n\n".join(f"{titles.get(split, split)}\n{shown}" for split, shown in tables.items())
