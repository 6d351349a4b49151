"""The steps of a training program: parse, check, prepare, train, report."""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from transformers import TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from trainers.errors import WriteError, named_errors, readable_errors
from trainers.files import filled_when_done
from trainers.methods.adapters import merge_lora
from trainers.reports.results import RunFacts
from trainers.training.divergence import TrainingDivergedError
from trainers.training.multitask import MultiTaskTrainer
from trainers.training.resuming import last_complete_checkpoint

from .arguments import FastTrainingArguments
from .processes import (
    ask_first,
    name_launcher,
    speak_once,
    use_all_cores,
    was_restarted,
)
from .recipes import parse_recipe
from .run_facts import describe_settings, fingerprint_start
from .run_folder import (
    asks_to_resume,
    check_data,
    check_output_dir,
    check_shared,
    find_checkpoint,
    finish_run,
    is_started_by,
    sole_writer,
    start_run,
)


class Run(Protocol):
    """A prepared run, as far as all programs need it."""

    @property
    def trainer(self) -> MultiTaskTrainer:
        """The trainer, with model and tokenizer."""

    @property
    def facts(self) -> RunFacts:
        """Everything needed to reproduce the run."""


class Done(NamedTuple):
    """The outcome of a program."""

    arguments: Any  # of the program
    training_arguments: TrainingArguments
    trained: bool  # whether at least one step was; False if a finished run was resumed


@dataclass(frozen=True)
class Program:
    """A training program.

    Args:
        name: File name, the prefix of error messages.
        arguments: Dataclass of its flags, a ``RunArguments``.
        recipe: Default recipe.
        prepare: Loads everything that a run needs, without writing anything. Takes the arguments
            of the program and of the Trainer, the command line, and the checkpoint to resume.
        report: Evaluates the trained model and writes the results.
    """

    name: str
    arguments: type[Any]
    recipe: Path
    prepare: Callable[[Any, TrainingArguments, list[str], str | None], Any]
    report: Callable[[Any], None]

    def main(self, argv: Sequence[str]) -> "Done":
        """Do a run. User errors are reported in one line, as by ``readable_errors``.

        Args:
            argv: ``[recipe.yaml] [--flag value ...]``.

        Returns:
            The outcome.
        """
        with ExitStack() as stack:
            with readable_errors(self.name):
                arguments, training_arguments = parse_recipe(
                    (self.arguments, FastTrainingArguments), argv, default_recipe=self.recipe
                )
                speak_once(training_arguments)
                use_all_cores(training_arguments)
                output_dir = training_arguments.output_dir
                overwrite = arguments.overwrite_output_dir
                asked = training_arguments.resume_from_checkpoint
                if was_restarted() and ask_first(
                    training_arguments, lambda: is_started_by(output_dir, name_launcher())
                ):
                    asked = "true"
                resume = asks_to_resume(asked)
                settings = describe_settings(training_arguments, asdict(arguments))
                check_output_dir(output_dir, settings, resume=resume, overwrite=overwrite)
                checkpoint = find_checkpoint(output_dir, asked, training_arguments.world_size)
                run: Run = self.prepare(arguments, training_arguments, list(argv), checkpoint)
                data = run.facts.fingerprints | fingerprint_start(arguments.model_name_or_path)
                check_data(output_dir, data, resume=resume, overwrite=overwrite)
                if run.trainer.is_world_process_zero():
                    stack.enter_context(sole_writer(output_dir))
                    start_run(output_dir, settings, data, resume=resume, launcher=name_launcher())
                    print(run.trainer.describe_training())  # noqa: T201  for the user
                if training_arguments.load_best_model_at_end:
                    check_shared(output_dir, training_arguments)
            trained = self._train(run, checkpoint)
        return Done(arguments, training_arguments, trained)

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
        except (TrainingDivergedError, WriteError) as error:
            kept = _describe_kept(args) if isinstance(error, WriteError) else ""
            print(f"{self.name}: error: {error}{kept}", file=sys.stderr)  # noqa: T201  for the user
            raise SystemExit(1) from None
        if args.push_to_hub:
            advice = (
                f"the run is complete; push it with `hf upload {args.hub_model_id or 'OWNER/NAME'} "
                f"{args.output_dir} --exclude 'checkpoint-*'`"
            )
            with readable_errors(self.name), named_errors("push_to_hub", advice):
                run.trainer.push_to_hub()
        return bool(run.trainer.state.global_step > before)


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
