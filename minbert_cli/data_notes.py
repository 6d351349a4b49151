"""Notes on the data of a task, for the output of a run and its report."""

from datasets_scripts import MOST_HELD_OUT, LoadedTask, TaskData


def describe_data(task: LoadedTask, data: TaskData) -> list[str]:
    """List what a reader should know of the rows of a task, a sentence each."""
    return _describe_held_out(task, data)


def _describe_held_out(task: LoadedTask, data: TaskData) -> list[str]:
    """Describe validation rows that were training rows."""
    facts = task.facts["validation"]
    if "held_out_of" not in facts:
        return []
    return [
        f"validation: {100 * data.validation_share:.3g} % of the training rows, at most "
        f"{MOST_HELD_OUT:,}, chosen at random ({facts['usable_rows']:,} of "
        f"{facts['held_out_of']:,})"
    ]
