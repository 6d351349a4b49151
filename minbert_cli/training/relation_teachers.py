"""The teacher of a recipe whose relations of tokens a student learns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from minbert_cli.checkpoints import find_commit
from minbert_cli.training.teachers import Teacher, check_positions, has_vocabulary_of
from modeling_minbert import MinBertConfig, MinBertModel
from trainers import Choice, Method, RelationArguments, load_pretrained
from trainers.methods.base import refuse_shared_rows
from trainers.methods.distillation.relation_distillation import NOT_SHARED, fit_relations
from trainers.runs.program_arguments import ProgramTrainingArguments
from trainers.runs.recipe_files import expand_path

FLAG = "relation_teacher"


@dataclass(frozen=True)
class RelationTeaching:
    """The relation teacher of a run, if it has one.

    Args:
        arguments: The keys of the recipe.
        path: Folder or Hub id of the teacher; None for none.
        config: Of the teacher.
    """

    arguments: RelationArguments
    path: str | None = None
    config: MinBertConfig | None = None

    @property
    def fingerprints(self) -> dict[str, str]:
        """Hash of the teacher."""
        return (
            {} if self.path is None else {f"{FLAG} {self.path}": Teacher(self.path).fingerprint()}
        )

    @property
    def commits(self) -> dict[str, str | None]:
        """Commit of a teacher on the Hub; None for a folder."""
        return {} if self.path is None else {f"{FLAG} {self.path}": find_commit(self.path, None)}

    def check_tasks(self, tasks: Mapping[str, Any]) -> None:
        """Raise ValueError if a `RecipeTask` shares rows, and there is a teacher."""
        if self.path is not None:
            refuse_shared_rows(tasks, tasks, *NOT_SHARED)

    def make_methods(
        self, student: MinBertConfig, tokenizer: PreTrainedTokenizerBase, max_length: int
    ) -> list[Method]:
        """Build the method for a student, if there is a teacher, which is loaded for training.

        Args:
            student: Configuration of the student.
            tokenizer: Its tokenizer.
            max_length: Most tokens of a sequence of the tasks without an own limit.

        Raises:
            ValueError: If the teacher does not read the tokens of the student, or a key does not
                fit it.
        """
        if self.path is None or self.config is None:
            return []
        where = f"{FLAG}={self.path!r}"
        if not has_vocabulary_of(self.path, FLAG, tokenizer):
            raise ValueError(
                f"{where} has another vocabulary than the student, but their tokens are compared: "
                "start the student from a checkpoint with the same one, or for a new model of "
                f"`minbert pretrain` give tokenizer_name_or_path: {self.path}"
            )
        limits = (student.task(name).encoding_options(max_length) for name in student.tasks or {})
        longest = max((limit["max_length"] for limit in limits), default=max_length)
        check_positions(where, self.config, longest)
        _check_layers(student, where)
        keys = (self.arguments.relation_teacher_layer, self.arguments.relation_heads)
        fit_relations(student, self.config, *keys)
        return [self.arguments.make_relation_distillation(self._load)]

    def _load(self) -> MinBertModel:
        options: dict[str, Any] = {"replaceable": ("pooler.",), "dtype": torch.float32}
        model: MinBertModel = load_pretrained(MinBertModel, str(self.path), flag=FLAG, **options)
        return model


def find_relation_teaching(arguments: RelationArguments) -> RelationTeaching:
    """Find the relation teacher of a recipe, if it has one.

    Raises:
        ValueError: If it cannot be loaded, or a value is out of range.
    """
    if arguments.relation_teacher is None:
        return RelationTeaching(arguments)
    _check_alone(arguments)
    path = expand_path(arguments.relation_teacher)
    config: MinBertConfig = load_pretrained(MinBertConfig, path, flag=FLAG)
    if getattr(config, "quantization_config", None) is not None:
        raise ValueError(
            f"{FLAG}={path!r} has quantized weights; give the checkpoint that it was made from"
        )
    teaching = RelationTeaching(arguments, path, config)
    arguments.make_relation_distillation(teaching._load)  # checks the values
    return teaching


def _check_layers(student: MinBertConfig, where: str) -> None:
    """Raise ValueError if a task of the student computes no layer."""
    for name in student.tasks or {}:
        if student.task(name).count_layers(student.num_hidden_layers) == 0:
            raise ValueError(
                f"task {name!r}: pooling_layer takes no layer of the encoder, so there are no "
                f"relations to learn from {where}"
            )


def _check_alone(arguments: Any) -> None:
    """Refuse what has no effect if a student learns from relations alone."""
    if arguments.relation_alpha != 1:
        return
    tasks = (getattr(arguments, "tasks", None) or {}).values()
    has_teacher = getattr(arguments, "teacher", None) or any(keys.get("teacher") for keys in tasks)
    refused = {
        "teacher: its share of the loss is 0": has_teacher,
        "early_stopping_patience: the heads are not trained, so no metric can stop the run": (
            arguments.early_stopping_patience is not None
        ),
    }
    for reason, is_refused in refused.items():
        if is_refused:
            raise ValueError(
                f"relation_alpha=1 does not go with {reason}; leave it out, or give a smaller "
                "relation_alpha"
            )


def keep_last_weights(arguments: RelationArguments, args: ProgramTrainingArguments) -> list[Choice]:
    """Keep the last weights of a run that trains no head, unless the recipe chooses them."""
    is_chosen = not args.chooses_best or not args.load_best_model_at_end
    if arguments.relation_alpha != 1 or is_chosen:
        return []
    args.keep_last()
    reason = "with relation_alpha 1 the heads are not trained, so their metrics say nothing"
    return [Choice("load_best_model_at_end", False, reason)]
