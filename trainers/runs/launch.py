"""What both programs do: parse, check, prepare, train, report."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from transformers import TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME

from trainers.errors import named_errors, readable_errors
from trainers.methods.adapters import merge_lora
from trainers.reports.results import RunFacts
from trainers.training.multitask import MultiTaskTrainer

from .arguments import FastTrainingArguments
from .recipes import parse_recipe
from .run_folder import (
    asks_to_resume,
    check_data,
    check_output_dir,
    describe_settings,
    find_checkpoint,
    fingerprint_start,
    finish_run,
    sole_writer,
    speak_once,
    start_run,
    use_all_cores,
)


class Run(Protocol):
    """What a run is made of; more is the business of its program."""

    @property
    def trainer(self) -> MultiTaskTrainer:
        """The trainer, with model and tokenizer."""

    @property
    def facts(self) -> RunFacts:
        """What one must know to repeat it."""


class Done(NamedTuple):
    """What a program did.

    Args:
        arguments: Its arguments.
        training_arguments: Those of the Trainer.
        trained: Whether a step was done; not if a finished run was resumed.
    """

    arguments: Any
    training_arguments: TrainingArguments
    trained: bool


@dataclass(frozen=True)
class Program:
    """A program: what it is called, what it reads, what it does before and after training.

    Args:
        name: Its file, which begins the line of an error.
        arguments: Dataclass of its flags, a ``RunArguments``.
        recipe: Recipe if there is none on the command line.
        prepare: Load everything that a run needs, from the arguments, those of the Trainer, the
            command line and the checkpoint to go on from, if any; nothing is written.
        report: Evaluate the trained model, and write what was found.
    """

    name: str
    arguments: type[Any]
    recipe: Path
    prepare: Callable[[Any, TrainingArguments, list[str], str | None], Any]
    report: Callable[[Any], None]

    def main(self, argv: Sequence[str]) -> "Done":
        """Do a run; a mistake of the user is one line and exit status 2.

        Args:
            argv: ``[recipe.yaml] [--flag value ...]``.

        Returns:
            What was done.
        """
        with ExitStack() as stack:
            with readable_errors(self.name):
                arguments, training_arguments = parse_recipe(
                    (self.arguments, FastTrainingArguments), argv, default_recipe=self.recipe
                )
                speak_once(training_arguments)
                use_all_cores(training_arguments)
                output_dir = training_arguments.output_dir
                asked = training_arguments.resume_from_checkpoint
                resume = asks_to_resume(asked)
                settings = describe_settings(training_arguments, asdict(arguments))
                check_output_dir(
                    output_dir, settings, resume=resume, overwrite=arguments.overwrite_output_dir
                )
                checkpoint = find_checkpoint(output_dir, asked, training_arguments.world_size)
                run: Run = self.prepare(arguments, training_arguments, list(argv), checkpoint)
                overwrite = arguments.overwrite_output_dir
                data = run.facts.fingerprints | fingerprint_start(arguments.model_name_or_path)
                check_data(output_dir, data, resume=resume, overwrite=overwrite)
                if run.trainer.is_world_process_zero():
                    stack.enter_context(sole_writer(output_dir))
                    start_run(output_dir, settings, data, resume=resume)
                    print(run.trainer.describe_training())  # noqa: T201  for who started it
            trained = self._train(run, checkpoint)
        return Done(arguments, training_arguments, trained)

    def _train(self, run: Run, checkpoint: str | None) -> bool:
        """Train, leave in the folder what the run found, and tell whether a step was done."""
        args = run.trainer.args
        before = 0
        if checkpoint is not None:
            state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
            before = state.global_step
        run.trainer.train(resume_from_checkpoint=checkpoint)
        merge_lora(run.trainer.accelerator.unwrap_model(run.trainer.model))
        run.trainer.save_model(args.output_dir, _internal_call=True)
        self.report(run)
        if run.trainer.is_world_process_zero():
            finish_run(str(args.output_dir))
        if args.push_to_hub:
            advice = (
                f"the run is whole; push it with `hf upload {args.hub_model_id or 'OWNER/NAME'} "
                f"{args.output_dir} --exclude 'checkpoint-*'`"
            )
            with readable_errors(self.name), named_errors("push_to_hub", advice):
                run.trainer.push_to_hub()
        return bool(run.trainer.state.global_step > before)
