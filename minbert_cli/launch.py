"""The steps of a training program: parse, check, prepare, train, report."""

import hashlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import datasets
import torch
import transformers
from accelerate.utils import broadcast_object_list, gather_object
from transformers import TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from trainers.data.dataset import Rows
from trainers.files import WriteError, filled_when_done, named_errors, readable_errors
from trainers.methods.adapters import merge_lora
from trainers.reports.results import RunFacts
from trainers.training.callbacks import TrainingDivergedError
from trainers.training.multitask import MultiTaskTrainer
from trainers.training.resuming import last_complete_checkpoint

from .arguments import ProgramTrainingArguments
from .console import (
    TimeEstimate,
    Workload,
    describe_model,
    measure_workload,
    print_text,
    quiet_libraries,
    show_progress,
)
from .recipe import as_recipe, fill_arguments, format_flags, parse_recipe
from .run_folder import (
    asks_to_resume,
    check_data,
    check_output_dir,
    check_shared,
    describe_settings,
    find_checkpoint,
    fingerprint_start,
    finish_run,
    is_smoke_test,
    is_started_by,
    sole_writer,
    start_run,
)

Made = TypeVar("Made")


def speak_once(args: TrainingArguments) -> None:
    """Silence logs and progress bars of all processes but the first."""
    level = logging.WARNING if args.process_index == 0 else logging.ERROR
    logging.basicConfig(format="%(levelname)s: %(message)s", level=level)
    logging.getLogger("huggingface_hub").propagate = False  # it has a handler of its own
    if args.process_index != 0:
        datasets.disable_progress_bars()
        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()


def name_launcher() -> str:
    """Name the process that started this one, and starts it again if it fails, on this machine.

    A hash: the name of the machine is nobody's business where results are published.
    """
    name = f"{socket.gethostname()} {os.getppid()}"
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def was_restarted(args: TrainingArguments) -> bool:
    """Whether ``torchrun --max-restarts`` has started the processes again after a failure.

    Each machine counts its own failures, so all processes are asked.
    """
    own = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    return own if args.world_size == 1 else any(gather_object([own]))


def share(args: TrainingArguments, make: Callable[[], Made]) -> Made:
    """Make an object on the first process, and return it on all of them."""
    if args.world_size == 1:
        return make()
    return broadcast_object_list([make() if args.process_index == 0 else None])[0]


def use_all_cores(args: TrainingArguments) -> None:
    """Use all cores if there is no accelerator: ``accelerate launch`` sets OMP_NUM_THREADS to 1."""
    launched = "ACCELERATE_MIXED_PRECISION" in os.environ  # the launcher always sets it
    if args.device.type == "cpu" and launched and os.environ.get("OMP_NUM_THREADS") == "1":
        processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        allowed = getattr(os, "sched_getaffinity", None)  # Linux only
        cores = len(allowed(0)) if allowed else os.cpu_count() or 1
        torch.set_num_threads(max(1, cores // processes))


TRAINING_ROWS = 64  # of each task
HELD_OUT_ROWS = 32  # of each task and held-out set
DOCUMENTS = 64  # of each text
MOST_STEPS = 20
SUFFIX = "-smoke"
# Keys of a task that depend on how many rows each class has: few rows may lack one.
BY_CLASS = ("max_train_samples_per_class", "max_eval_samples_per_class", "oversample")
WEIGHTS = ("class_weights", "pos_weight")  # if they are balanced


def smoke_folder(output_dir: str | os.PathLike[str]) -> str:
    """Return the folder of the smoke test of a run or of experiments; empty if there is none."""
    return f"{os.path.normpath(output_dir)}{SUFFIX}" if str(output_dir) else ""


def shrink(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a recipe that its smoke test changes, without the folder.

    Every task is trained, and there are two evaluations if there are any.
    """
    tasks = recipe.get("tasks")
    names = tasks if isinstance(tasks, Mapping) else ()
    steps = _least(recipe.get("max_steps"), min(MOST_STEPS, max(4, 2 * len(names))))
    half = max(1, steps // 2)
    changes: dict[str, Any] = {
        "max_steps": steps,
        "logging_steps": 1,
        "eval_steps": half,
        "save_steps": half,
        "eval_delay": 0,
        "push_to_hub": False,
        "report_to": "none",
        "resume_from_checkpoint": None,
    }
    for key in ("eval_strategy", "save_strategy"):
        if recipe.get(key) == "epoch":
            changes[key] = "steps"
    if names:
        changes["tasks"] = {name: _shrink_task(keys) for name, keys in dict(names).items()}
    if "corpus" in recipe:
        changes |= _shrink_text(recipe)
    return changes


def _shrink_task(keys: Any) -> Any:
    if not isinstance(keys, Mapping):
        return keys  # refused later
    if "corpus" in keys:
        return {**keys, **_shrink_text(keys)}
    kept = {
        key: value
        for key, value in keys.items()
        if key not in BY_CLASS and not (key in WEIGHTS and value == "balanced")
    }
    most = dict.fromkeys(("max_eval_samples", "max_test_samples"), HELD_OUT_ROWS)
    most["max_train_samples"] = TRAINING_ROWS
    if kept.get("unlabeled_file") is not None:
        most["max_unlabeled_samples"] = TRAINING_ROWS
    return kept | {key: _least(kept.get(key), limit) for key, limit in most.items()}


def _shrink_text(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed keys of a task that learns from text."""
    changes: dict[str, Any] = {
        "max_eval_samples": _least(keys.get("max_eval_samples"), HELD_OUT_ROWS)
    }
    if isinstance(corpora := keys["corpus"], Mapping):
        changes["corpus"] = {name: _shrink_corpus(corpus) for name, corpus in corpora.items()}
    return changes


def _shrink_corpus(keys: Any) -> Any:
    if not isinstance(keys, Mapping):
        return keys  # refused later
    return {**keys, "max_documents": _least(keys.get("max_documents"), DOCUMENTS)}


def _least(given: Any, limit: int) -> Any:
    """Return the smaller number; none and -1 mean no limit, and what is wrong is kept."""
    if given in (None, -1):
        return limit
    return min(given, limit) if type(given) is int else given


def describe_skipped(folder: str | os.PathLike[str]) -> str:
    """Say what a smoke test that passed has left out."""
    return (
        f"smoke test passed; its files are in {Path(folder)}. Skipped: rows beyond "
        f"{TRAINING_ROWS} for training and {HELD_OUT_ROWS} for each evaluation of a task, "
        f"documents beyond {DOCUMENTS} of a text, most of the steps, uploads and logging services. "
        f"{str(Path(folder)).removesuffix(SUFFIX)} was not touched. The scores mean nothing."
    )


INTERRUPTED = "interrupted; --resume_from_checkpoint true continues from the last checkpoint"
# A command line, [recipe.yaml] [--flag value ...], or the recipe itself.
Given: TypeAlias = Sequence[str] | Mapping[str, Any]


class Run(Protocol):
    """A prepared run, as far as all programs need it."""

    @property
    def trainer(self) -> MultiTaskTrainer:
        """The trainer, with model and tokenizer."""

    @property
    def facts(self) -> RunFacts:
        """Everything needed to reproduce the run."""

    def rows_to_evaluate(self) -> Mapping[str, Mapping[str, Rows]]:
        """Return the rows that are predicted after training, by task and split."""


class Prepared(NamedTuple):
    """A run that is checked and ready, and what it was made from."""

    arguments: Any  # of the program
    args: ProgramTrainingArguments
    run: Run
    checkpoint: str | None  # to resume
    resume: bool
    settings: dict[str, Any]
    data: dict[str, str]  # fingerprints


class Done(NamedTuple):
    """The outcome of a program."""

    arguments: Any  # of the program
    training_arguments: TrainingArguments
    trained: bool  # whether at least one step was; False if a finished run was resumed
    trainer: MultiTaskTrainer


@dataclass(frozen=True)
class Program:
    """A training program.

    Args:
        name: File name, the prefix of error messages.
        arguments: Dataclass of its flags, a ``RunArguments``.
        recipe: Default recipe.
        prepare: Loads everything that a run needs, without writing anything. Takes the arguments
            of the program and of the Trainer, the command line or the recipe, and the checkpoint to
            resume.
        report: Evaluates the trained model and writes the results.
        training_arguments: Dataclass of the Trainer's flags.
    """

    name: str
    arguments: type[Any]
    recipe: Path
    prepare: Callable[[Any, ProgramTrainingArguments, Given, str | None], Any]
    report: Callable[[Any], None]
    training_arguments: type[ProgramTrainingArguments] = ProgramTrainingArguments

    def main(self, argv: Sequence[str]) -> Done:
        """Do a run of the command line, ``[recipe.yaml] [--flag value ...]``.

        Errors are reported in one line: those of the user as by ``readable_errors``, divergence and
        files that cannot be written with exit status 1, Ctrl-C with 130.
        """
        try:
            return self.run(argv, partial(readable_errors, self.name))
        except (TrainingDivergedError, WriteError) as error:
            print(f"{self.name}: error: {error}", file=sys.stderr)
            raise SystemExit(1) from None
        except KeyboardInterrupt:
            print(f"\n{self.name}: {INTERRUPTED}", file=sys.stderr)
            raise SystemExit(128 + signal.SIGINT) from None

    def run(
        self,
        given: Given,
        reading: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Done:
        """Do a run; all errors are raised.

        Args:
            given: A command line, or a recipe.
            reading: Wraps what reads and checks the input of the user.

        Returns:
            The outcome.
        """
        with ExitStack() as stack:
            with reading():
                prepared = self._prepare(given, {}, stack)
                arguments, args, run, checkpoint, resume, settings, data = prepared
                output_dir = str(args.output_dir)
                if run.trainer.is_world_process_zero():
                    stack.enter_context(sole_writer(output_dir))
                    origin = (run.facts.commits, name_launcher())
                    start_run(output_dir, settings, data, *origin, resume=resume)
                workload = _announce(run)
                if not arguments.verbose:
                    stack.callback(show_progress(run.trainer, workload).close)
                if args.load_best_model_at_end:
                    check_shared(output_dir, args)
            trained = self._train(run, checkpoint)
            if args.push_to_hub:
                with reading():
                    _push(run)
            if arguments.smoke_test and run.trainer.is_world_process_zero():
                print(f"\n{describe_skipped(output_dir)}")
        return Done(arguments, args, trained, run.trainer)

    def check(self, given: Given) -> Run:
        """Prepare a run as ``run`` does, print what it would do, and write nothing."""
        # the Trainer would create the repository on the Hub, and the folder
        with ExitStack() as stack:
            folder = stack.enter_context(TemporaryDirectory(prefix="minbert-"))
            run = self._prepare(given, {"push_to_hub": False}, stack, folder).run
        _announce(run)
        return run

    def _prepare(
        self,
        given: Given,
        changes: Mapping[str, Any],
        stack: ExitStack,
        folder: str | None = None,
    ) -> Prepared:
        """Read and check everything; ``changes`` win over the recipe and the flags.

        Libraries are quiet until ``stack`` is closed. The trainer gets ``folder`` instead of the
        output folder, if it is given.
        """
        arguments, args = self._parse(given, changes)
        speak_once(args)
        stack.enter_context(quiet_libraries(verbose=arguments.verbose))
        use_all_cores(args)
        output_dir, overwrite = str(args.output_dir), arguments.overwrite_output_dir
        asked = _asked_checkpoint(args)
        resume = asks_to_resume(asked)
        settings = describe_settings(args, asdict(arguments))
        check_output_dir(output_dir, settings, resume=resume, overwrite=overwrite)
        checkpoint = find_checkpoint(output_dir, asked, args.world_size)
        args.output_dir = folder or output_dir
        run: Run = self.prepare(arguments, args, given, checkpoint)
        data = run.facts.fingerprints | fingerprint_start(arguments.model_name_or_path)
        check_data(output_dir, data, resume=resume, overwrite=overwrite)
        return Prepared(arguments, args, run, checkpoint, resume, settings, data)

    def _parse(self, given: Given, changes: Mapping[str, Any]) -> tuple[Any, ...]:
        """Fill the arguments of the program and of the Trainer."""
        arguments, args = self._fill(given, changes)
        if not arguments.smoke_test:
            return arguments, args
        shrunk = shrink({**vars(args), **asdict(arguments)})
        folder = smoke_folder(str(args.output_dir))
        shrunk |= {"output_dir": folder, "overwrite_output_dir": is_smoke_test(folder)}
        return self._fill(given, {**shrunk, **changes})

    def _fill(self, given: Given, changes: Mapping[str, Any]) -> tuple[Any, Any]:
        kinds = (self.arguments, self.training_arguments)
        if isinstance(given, Mapping):
            return fill_arguments(kinds, as_recipe(given) | dict(changes), where="recipe")
        argv = [*given, *format_flags(changes)]
        return parse_recipe(kinds, argv, default_recipe=self.recipe)

    def _train(self, run: Run, checkpoint: str | None) -> bool:
        """Train, write the results, and return whether at least one step was trained."""
        args = run.trainer.args
        before = 0
        if checkpoint is not None:
            state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
            before = state.global_step
        try:
            run.trainer.train(resume_from_checkpoint=checkpoint)
            merge_lora(run.trainer.accelerator.unwrap_model(run.trainer.model))
            _save_model(run.trainer)
            self.report(run)
            if run.trainer.is_world_process_zero():
                finish_run(str(args.output_dir))
        except WriteError as error:
            raise WriteError(f"{error}{_describe_kept(args)}") from error
        return bool(run.trainer.state.global_step > before)


def _asked_checkpoint(args: TrainingArguments) -> str | None:
    """Return the checkpoint to resume from; the last one if the launcher started the run again."""
    folder = str(args.output_dir)
    if was_restarted(args) and share(args, lambda: is_started_by(folder, name_launcher())):
        return "true"
    return args.resume_from_checkpoint


def _announce(run: Run) -> Workload:
    """Print what the run starts from, has chosen and will do; its expected time comes later."""
    trainer, facts = run.trainer, run.facts
    workload = measure_workload(trainer, run.rows_to_evaluate())
    trainer.add_callback(TimeEstimate(workload))
    if trainer.is_world_process_zero():
        start = describe_model(trainer.model, facts.model_name_or_path)
        training = f"{trainer.describe_training()}\n\n{workload.describe()}"
        shown = (start, facts.describe_choices(), training, facts.describe_notes())
        print_text("\n\n".join(filter(None, shown)) + "\n")
    return workload


def _push(run: Run) -> None:
    args = run.trainer.args
    advice = (
        f"the run is complete; push it with `hf upload {args.hub_model_id or 'OWNER/NAME'} "
        f"{args.output_dir} --exclude 'checkpoint-*'`"
    )
    with named_errors("push_to_hub", advice):
        run.trainer.push_to_hub()


def _save_model(trainer: MultiTaskTrainer) -> None:
    """Save the trained model, completely or not at all."""
    output_dir, is_first = str(trainer.args.output_dir), trainer.is_world_process_zero()
    with filled_when_done(output_dir, moves=is_first) as folder:
        trainer.save_model(str(folder), _internal_call=True)
        trainer.accelerator.wait_for_everyone()


def _describe_kept(args: TrainingArguments) -> str:
    """Say what is left of a run whose files cannot be written."""
    last = last_complete_checkpoint(str(args.output_dir), args.world_size)
    if last is None:
        return "; there is no checkpoint before. Free some space and repeat the command"
    return f"; {last} is complete. Free some space, and continue with --resume_from_checkpoint true"
