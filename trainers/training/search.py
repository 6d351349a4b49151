"""Searches for hyperparameters."""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from .preparation.checks import list_metrics


def search_hyperparameters(
    trainer: Any,
    search: Callable[..., Any],
    hp_space: Callable[[Any], dict[str, Any]] | None,
    compute_objective: Callable[[dict[str, float]], float] | None,
    n_trials: int,
    direction: str | list[str] | None,
    **kwargs: Any,
) -> Any:
    """Train in several trials, each with a new model, and find the best settings.

    A trial is a training of its own: it ends with the weights of a plain run with its settings. Its
    checkpoints are in ``run-<number>``. Afterwards the arguments of the trainer are those from
    before. Tested with optuna.

    Args:
        trainer: The trainer, with a ``model_init``.
        search: ``hyperparameter_search`` of ``Trainer``.
        hp_space: A function from a trial to values of ``TrainingArguments``.
        compute_objective: A function from the metrics of an evaluation to the objective; None takes
            ``eval_mean``.
        n_trials: Number of trials.
        direction: ``maximize`` or ``minimize``; None maximizes ``eval_mean``, and is refused with a
            ``compute_objective``.
        **kwargs: ``backend``, ``hp_name``, and arguments of the backend, such as ``pruner``.
            ``catch=(TrainingDivergedError,)`` continues after a trial that diverged.

    Returns:
        The best run: ``run_id``, ``objective`` and ``hyperparameters``.

    Raises:
        ValueError: If there is no ``model_init``, no rows to evaluate, or no direction.
    """
    _check(trainer, compute_objective, direction, kwargs)
    if compute_objective is None:
        compute_objective = itemgetter("eval_mean")
    trainer.settings_before_search = dict(vars(trainer.args))
    try:
        return search(hp_space, compute_objective, n_trials, direction or "maximize", **kwargs)
    finally:
        vars(trainer.args).update(trainer.settings_before_search)
        trainer.hp_search_backend = None


def _check(
    trainer: Any, compute_objective: Any, direction: Any, options: Mapping[str, Any]
) -> None:
    """Check that trials can be made and measured."""
    has_objective, jobs = compute_objective is not None, options.get("n_jobs", 1)
    mistakes = {
        "makes a new model for every trial: give the trainer a model_init instead of a model": (
            trainer.model_init is None
        ),
        "compares evaluations: give the tasks evaluation rows": not trainer.eval_dataset,
        "needs a direction for compute_objective; give 'maximize' or 'minimize'": (
            has_objective and direction is None
        ),
        "maximizes eval_mean, which these tasks do not have; give a compute_objective and a "
        "direction": not has_objective and "mean" not in list_metrics(trainer.problems, ()),
        f"with n_jobs={jobs!r}: trials share the trainer and run one after the other; leave it "
        "out": jobs != 1,
    }
    for message, is_made in mistakes.items():
        if is_made:
            raise ValueError(f"hyperparameter_search {message}")
