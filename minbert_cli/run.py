"""A run of `minbert finetune` or `pretrain`: all that surrounds the making of its trainer."""

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, TypeVar

from accelerate.utils import broadcast_object_list
from transformers import TrainingArguments

import trainers
from datasets_scripts import TaskRows
from minbert_cli import run_folder
from minbert_cli.arguments import ProgramTrainingArguments
from minbert_cli.checkpoints import find_commit
from minbert_cli.console import describe_size, quiet_libraries, show_progress
from minbert_cli.recipe import as_recipe, fill_arguments, format_recipe, read_recipe
from minbert_cli.recipes import MODEL_CARD, check_program, load_kinds, split_argv, with_recipe_name
from trainers import (
    LastStep,
    MultiTaskTrainer,
    RunFacts,
    Task,
    TrainingDivergedError,
    WriteError,
    last_complete_checkpoint,
    named_errors,
    readable_errors,
)
from trainers.files import filled_when_done, find_inner, hide_token

INTERRUPTED = "interrupted; --resume_from_checkpoint true continues from the last checkpoint"
# A command line, [recipe.yaml] [--flag value ...], or the recipe itself.
Given: TypeAlias = Sequence[str] | Mapping[str, Any]
Made = TypeVar("Made")
# Random state and the output of libraries are those of the process.
ONLY_RUN = threading.Lock()
if hasattr(os, "register_at_fork"):  # a child is a process of its own
    os.register_at_fork(after_in_child=lambda: globals().update(ONLY_RUN=threading.Lock()))


class Run:
    """A run of a program, as `open_run` begins it.

    In the context of `open_run` a program makes the trainer, and calls `start`, `train`, a
    `report` and `finish`. Until `start` has ended, nothing is written.
    """

    arguments: Any  # the keys of the recipe that are of the program
    args: ProgramTrainingArguments
    trainer: MultiTaskTrainer
    # from `start` on
    encoded: dict[str, dict[str, Any]]
    facts: RunFacts
    has_started = False

    def __init__(self, program: str, *, is_command: bool, is_dry: bool, cleanup: ExitStack) -> None:
        self.program, self.is_command = program, is_command
        self.is_dry = is_dry  # whether it ends with `start`, and writes nothing
        self.cleanup = cleanup  # is closed at the end
        self.reading = cleanup.enter_context(ExitStack())  # reports errors of the user
        if is_command:
            self.reading.enter_context(readable_errors(f"minbert {program}"))

    def read(self, given: Given, default_recipe: Path) -> None:
        """Read and check the arguments of the run, and its folder."""
        flags: list[str] = []
        if isinstance(given, Mapping):
            recipe, where = as_recipe(given), "recipe"
            command = f"import minbert; minbert.{self.program}(recipe)"
            published = format_recipe(given)
        else:
            path, flags = split_argv(given, default_recipe)
            recipe, where = read_recipe(path), str(path)
            check_program(recipe, path, self.program)
            command = shlex.join(["minbert", self.program, *with_recipe_name(given)])
            published = path.read_text(encoding="utf-8")
        arguments, args = fill_arguments(load_kinds(self.program), recipe, flags, where=where)
        self.arguments, self.args = arguments, args
        if args.world_size > 1:
            launched = f"accelerate launch -m minbert_cli.{self.program}"
            command = command.replace(f"minbert {self.program}", launched, 1)
        self.command = hide_token(command, args.hub_token)  # that repeats it
        self.recipe = describe_recipe(recipe, published, args.hub_token)  # as a text to publish
        self.cleanup.enter_context(quiet_libraries(args, verbose=arguments.verbose))
        # that of the arguments is a temporary one in a dry run
        self.output_dir = str(args.output_dir)
        asked = args.resume_from_checkpoint
        self.resume = run_folder.asks_to_resume(asked)  # an earlier run in the folder
        self.settings = run_folder.describe_settings(args, asdict(arguments))
        run_folder.check_output_dir(self.output_dir, self.settings, resume=self.resume)
        # that it continues from
        self.checkpoint = run_folder.find_checkpoint(self.output_dir, asked, args.world_size)
        begun = run_folder.read_run(self.output_dir) if self.resume else None
        if self.checkpoint is not None:
            begun = run_folder.check_checkpoint(self.checkpoint, self.settings)
        if begun is not None:  # the branch of a model on the Hub may have moved on since
            arguments.revision = begun.commits.get("model_name_or_path") or arguments.revision
        if self.is_dry:  # the Trainer makes its folder, and would create the repository on the Hub
            args.output_dir = self.cleanup.enter_context(TemporaryDirectory(prefix="minbert-"))
            args.push_to_hub = False

    def make_facts(
        self, hub_datasets: Sequence[str | None], commits: Mapping[str, str | None], **facts: Any
    ) -> RunFacts:
        """Describe what the run is made from; names and commits are None for what has none."""
        path = self.arguments.model_name_or_path
        commits = {"model_name_or_path": find_commit(path, self.arguments.revision), **commits}
        fetched = [name for name in hub_datasets if name is not None and not Path(name).exists()]
        names = sorted({name.partition(":")[0] for name in fetched})
        return RunFacts(
            command=self.command,
            recipe=self.recipe,
            model_name_or_path=path,
            commits={name: commit for name, commit in commits.items() if commit is not None},
            card=({"datasets": names} if names else {}) | (self.arguments.card or {}),
            **facts,
        )

    def make_trainer(self, model: Any, tasks: Sequence[Task], **options: Any) -> None:
        """Create the trainer; explain errors of the Hub while it creates the repository."""
        callbacks = [*self.arguments.make_callbacks(self.args), LastStep()]
        advice = "check the network, log in with `hf auth login`, or train without it"
        with named_errors("push_to_hub", advice) if self.args.push_to_hub else nullcontext():
            self.trainer = MultiTaskTrainer(model, self.args, tasks, callbacks=callbacks, **options)

    def start(self, encoded: dict[str, dict[str, Any]], facts: RunFacts) -> None:
        """Take the folder of the run, and print what the run starts from, has chosen and will do.

        Raises:
            ValueError: If the data of an earlier run have changed, or another process writes to
                the folder.
        """
        trainer, self.encoded, self.facts = self.trainer, encoded, facts
        data = facts.fingerprints | run_folder.fingerprint_start(self.settings)
        output_dir = self.output_dir
        run_folder.check_data(output_dir, data)
        if self.checkpoint is not None:
            run_folder.check_checkpoint(self.checkpoint, self.settings, data)
        elif self.resume and not self.is_dry and run_folder.is_finished(output_dir):
            message = (
                f"output_dir={output_dir!r} has this run, finished, and no checkpoint to resume: "
                f"it is left as it is. To train it again, {run_folder.BEGIN_AGAIN}"
            )
            if not self.is_command:
                raise ValueError(message)
            if self.args.process_index == 0:
                print(message)
            raise SystemExit(0)
        if trainer.is_world_process_zero() and not self.is_dry:
            self.cleanup.enter_context(run_folder.sole_writer(output_dir))
            # another run may have written to it since
            run_folder.check_same_run(output_dir, self.settings, resume=self.resume)
            run_folder.start_run(output_dir, self.settings, data, facts.commits)
        if trainer.is_world_process_zero():
            model: Any = trainer.model
            millions = sum(weight.numel() for weight in model.parameters()) / 1e6
            start = facts.model_name_or_path
            header = (
                f"{type(model).__name__}: {model.config.num_hidden_layers} layers of width "
                f"{model.config.hidden_size}, {millions:,.1f} million parameters, "
                + ("new weights" if start is None else f"from {start}")
            )
            training = describe_size(trainer)
            shown = (header, facts.describe_choices(), training, facts.describe_notes())
            print("\n\n".join(filter(None, shown)), end="\n\n")
        if self.is_dry:
            self.describe_rows()
            return
        if not self.arguments.verbose:
            self.cleanup.callback(show_progress(trainer).close)
        if self.args.load_best_model_at_end:
            run_folder.check_shared(output_dir, self.args)
        self.reading.close()
        self.has_started = True

    def describe_rows(self) -> None:
        """Print of each task its data and the numbers of its rows."""
        print()
        for task, splits in self.encoded.items():
            # a pre-training evaluates only some of its training rows
            sampler: Any = self.trainer.train_sampler
            sizes = {"train": sampler.sizes[task]}
            sizes |= {split: len(rows) for split, rows in splits.items() if split != "train"}
            shown = ", ".join(f"{size:,} {split}" for split, size in sizes.items())
            kind, source = self.trainer.problems[task].problem_type, self.facts.data[task]
            print(f"{task}: {kind}, {source}, {shown} rows")
            if skipped := self.facts.bad_rows.get(task):
                print(f"{task}: {len(skipped):,} invalid rows are skipped")

    def train(self) -> None:
        """Train, and save the model, completely or not at all."""
        trainer = self.trainer
        trainer.train(resume_from_checkpoint=self.checkpoint)
        if getattr(self.arguments, "lora", None) is not None:
            trainers.merge_lora(trainer.accelerator.unwrap_model(trainer.model))
        with filled_when_done(self.output_dir, moves=trainer.is_world_process_zero()) as folder:
            trainer.save_model(str(folder), _internal_call=True)
            trainer.accelerator.wait_for_everyone()

    def finish(self) -> None:
        """Record that all files are written, and push the model if that is asked for."""
        args = self.args
        if self.trainer.is_world_process_zero():
            run_folder.finish_run(self.output_dir)
        if args.push_to_hub:
            name = args.hub_model_id or "OWNER/NAME"
            advice = (
                f"the run is complete; push it with `hf upload {name} {self.output_dir} "
                "--exclude 'checkpoint-*'`"
            )
            readable = readable_errors(f"minbert {self.program}")
            with (
                readable if self.is_command else nullcontext(),
                named_errors("push_to_hub", advice),
            ):
                self.trainer.push_to_hub()


@contextmanager
def open_run(
    program: str,
    default_recipe: Path,
    given: Given,
    *,
    is_command: bool = False,
    is_dry: bool = False,
) -> Iterator[Run]:
    """Read and check the arguments of a run and its folder; then its context is the run.

    Libraries are quiet until the end. In a command, errors of the user before the training are one
    line, with exit status 1 or 2, divergence and files that cannot be written status 1, and Ctrl-C
    status 130; in Python all errors are raised.
    """
    if not ONLY_RUN.acquire(blocking=False):
        raise ValueError(
            f"minbert.{program}: another run of this process has not ended, and both would draw "
            "from the same random state: let one follow the other, or give each its own process"
        )
    with ExitStack() as cleanup:
        cleanup.callback(ONLY_RUN.release)
        if is_command:
            cleanup.enter_context(_exit_status(f"minbert {program}"))
        run = Run(program, is_command=is_command, is_dry=is_dry, cleanup=cleanup)
        run.read(given, default_recipe)
        try:
            yield run
        except WriteError as error:
            if not run.has_started:
                raise
            last = last_complete_checkpoint(str(run.args.output_dir), run.args.world_size)
            kept = "there is no checkpoint before" if last is None else f"{last} is complete"
            raise WriteError(
                f"{error}; {kept}. Free some space, and continue with --resume_from_checkpoint true"
            ) from error


def describe_recipe(recipe: Mapping[str, Any], text: str, token: str | None = None) -> str:
    """Return a recipe for publication, without the Hub token, however its text spells it."""
    if recipe.get("hub_token") is not None:
        shown = {key: value for key, value in recipe.items() if key != "hub_token"}
        text = "# without comments and hub_token\n" + format_recipe(shown)
    return hide_token(text, token)


def share(args: TrainingArguments, make: Callable[[], Made]) -> Made:
    """Make an object on the first process, and return it on all of them."""
    if args.world_size == 1:
        return make()
    return broadcast_object_list([make() if args.process_index == 0 else None])[0]


@contextmanager
def _exit_status(name: str) -> Iterator[None]:
    """End a command with one line and a status after divergence, a full disk and Ctrl-C."""
    try:
        yield
    except (TrainingDivergedError, WriteError) as error:
        print(f"{name}: error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        print(f"\n{name}: {INTERRUPTED}", file=sys.stderr)
        raise SystemExit(128 + signal.SIGINT) from None


def report(
    run: Run,
    *,
    rows: Mapping[str, TaskRows] | None = None,
    tabulated: Collection[str] = (),
    quoted_errors: int = 0,
) -> None:
    """Evaluate the trained model; on the first process, write and print the results.

    ``rows`` are those of labeled tasks. ``tabulated`` are tasks whose predictions are written as
    tables. ``quoted_errors`` is the most rows of each task that the report quotes.
    """
    # by the name of the package, which imports what writes the results now, and not before
    trainer, folder = run.trainer, run.output_dir
    # the held-out rows and, to show overfitting, the same number of training rows
    selected = {}
    for task, splits in run.encoded.items():
        selected[task] = {split: part for split, part in splits.items() if split != "train"}
        if run.arguments.evaluate_train:
            most, problem = len(splits["validation"]), trainer.problems[task]
            selected[task]["train"] = problem.choose_rows(splits["train"], most)
    results, outputs = trainers.evaluate_run(trainer, selected)
    if not trainer.is_world_process_zero():
        return
    texts = {name: task_rows.splits for name, task_rows in (rows or {}).items()}
    parts = (trainer, run.encoded, results, outputs, run.facts, texts, quoted_errors, tabulated)
    finished = trainers.FinishedRun(*parts)
    trainers.write_results(finished)
    trainers.write_card(MODEL_CARD, finished)
    page = trainers.report_run(finished)
    titles = {"train": "train (as many of the rows that were trained on)"}  # they come last
    for split in sorted(results, key=lambda name: name == "train"):
        print(f"\n{titles.get(split, split)}\n{results[split].table(trainer.problems)}")
    fits = [
        f"{task}: {what}: {note}"
        for task, problem in trainer.problems.items()
        for what, note in problem.notes.items()
    ]
    if fits:
        print("", *fits, sep="\n")
    print(f"\nmodel: {folder}", *([f"report: {page}"] if page is not None else ()), sep="\n")
    print(f"next: {advise(run)}")


def advise(run: Run) -> str:
    """Return a command that uses the model."""
    folder, model = run.output_dir, find_inner(run.trainer.model)
    for name, problem in run.trainer.problems.items():
        if problem.kind.is_pretraining:
            continue
        if problem.kind.is_unlabelled:
            return f"minbert predict {folder} --embed vectors.npy --file TEXTS"
        task = model.config.task(name)
        if getattr(task, "words", None) == "given":
            return f"minbert predict {folder} --task {name} --file WORDS.conll"
        texts = [task.example_row] if isinstance(task.example_row, str) else list(task.example_row)
        quoted = " ".join(f'"{text}"' for text in texts)
        return f"minbert predict {folder} --task {name} {quoted}"
    return f"minbert finetune RECIPE --model_name_or_path {folder}"
