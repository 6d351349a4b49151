"""The expected time of a run."""

import pytest
from transformers import TrainerCallback

from minbert_cli.console import TimeEstimate, measure_costs, measure_workload
from tests.trainers import tiny
from trainers import LastStep, SamplingArguments, list_batches
from trainers.reports.texts import format_duration

SECONDS = {"moods": 2.0, "pairs": 4.0, "scores": 6.0}  # of a micro-step


class Clock(TrainerCallback):
    """A clock that advances with every batch by the time of its task."""

    def __init__(self, seconds=None):
        self.now, self.seconds = 0.0, seconds or SECONDS

    def __call__(self):
        return self.now

    def watch(self, trainer):
        step = trainer.training_step

        def training_step(model, inputs, *args, **kwargs):
            self.now += sum(self.seconds[batch["task"]] for batch in list_batches(inputs))
            return step(model, inputs, *args, **kwargs)

        trainer.training_step = training_step


class SlowEvaluation(TrainerCallback):
    """Lets an evaluation take a second for each of the 11 rows of a task, and a save an hour."""

    def __init__(self, clock):
        self.clock = clock

    def on_evaluate(self, args, state, control, metrics, **kwargs):  # noqa: ARG002  its signature
        for name in metrics:
            if name.endswith("_runtime"):
                metrics[name] = 11.0
        self.clock.now += 11.0

    def on_save(self, args, state, control, **kwargs):  # noqa: ARG002  its signature
        self.clock.now += 3600.0


def train(folder, capsys, *, final=None, own=None, seconds=None, **arguments):
    """Train with an injected clock; returns the estimate and the lines it printed."""
    clock = Clock(seconds)
    callbacks = [LastStep(), SlowEvaluation(clock)]
    trainer = tiny.make_trainer(folder, callbacks=callbacks, own=own, **arguments)
    clock.watch(trainer)
    estimate = TimeEstimate(measure_workload(trainer, final), clock)
    trainer.add_callback(estimate)
    trainer.train()
    lines = capsys.readouterr().out.splitlines()
    return estimate, [line for line in lines if "to the end of the run" in line]


def test_the_tasks_of_the_other_steps_have_their_own_times(tmp_path, capsys):
    # 200 steps: 67 of moods, 67 of pairs, 66 of scores; 8, 7 and 7 of them in the first 22
    estimate, lines = train(tmp_path, capsys, max_steps=200)

    assert estimate.left.training == pytest.approx(59 * 2 + 60 * 4 + 59 * 6)
    assert estimate.left.evaluations == 0
    assert lines == ["about 12 min to the end of the run, on cpu in float32"]


def test_a_progress_bar_does_not_hide_it(tmp_path, capsys):
    _, lines = train(tmp_path, capsys, max_steps=200, disable_tqdm=False)

    assert len(lines) == 1


def test_a_row_of_an_evaluation_costs_a_third_until_one_is_timed(tmp_path, capsys):
    final = {"pairs": {"validation": range(100), "test": range(200)}}

    estimate, lines = train(
        tmp_path, capsys, final=final, max_steps=60, eval_strategy="steps", eval_steps=30
    )

    # batches have 4 rows
    per_row = {task: seconds / 4 / 3 for task, seconds in SECONDS.items()}
    expected = 2 * 11 * sum(per_row.values()) + 300 * per_row["pairs"]
    assert estimate.left.evaluations == pytest.approx(expected)
    assert lines == [
        "about 5 min to the end of the run, 2 min of it for evaluations, on cpu in float32"
    ]


def test_an_evaluation_that_was_timed_is_what_it_costs_and_saves_are_left_out(tmp_path, capsys):
    strategies = dict.fromkeys(("eval_strategy", "save_strategy"), "steps")
    steps = dict.fromkeys(("eval_steps", "save_steps"), 10)

    estimate, _ = train(tmp_path, capsys, max_steps=60, **strategies, **steps)

    # of six, two are over
    assert estimate.left.evaluations == pytest.approx(4 * 33.0)
    assert estimate.left.training == pytest.approx(12 * 2 + 13 * 4 + 13 * 6)


def test_an_evaluation_right_after_the_timed_steps_is_still_to_come(tmp_path, capsys):
    estimate, _ = train(tmp_path, capsys, max_steps=44, eval_strategy="steps", eval_steps=22)

    assert estimate.left.evaluations == pytest.approx(2 * 11 * sum(SECONDS.values()) / 4 / 3)


def test_a_step_of_all_tasks_is_divided_by_rows(tmp_path, capsys):
    mixed = {"sampling": SamplingArguments(task_sampling="mixed").make_sampling()}

    estimate, _ = train(
        tmp_path, capsys, own=mixed, max_steps=50, eval_strategy="steps", eval_steps=50
    )

    assert estimate.left.training == pytest.approx(28 * 12.0)
    assert estimate.left.evaluations == pytest.approx(33 * (12.0 / 12) / 3)


def test_accumulated_steps_are_those_of_the_optimizer(tmp_path, capsys):
    estimate, _ = train(tmp_path, capsys, max_steps=50, gradient_accumulation_steps=3)

    # every optimizer step has a batch of each task
    assert estimate.left.training == pytest.approx(28 * 12.0)


@pytest.mark.parametrize(
    ("max_steps", "seconds", "printed"), [(60, 1.9, 0), (60, 2.1, 1), (24, 29.0, 0), (21, 900.0, 0)]
)
def test_a_run_of_less_than_two_minutes_or_almost_done_prints_nothing(
    tmp_path, capsys, max_steps, seconds, printed
):
    seconds = dict.fromkeys(SECONDS, seconds)

    _, lines = train(tmp_path, capsys, max_steps=max_steps, seconds=seconds)

    assert len(lines) == printed


@pytest.mark.parametrize("max_steps", [1, 2, 3, 21])
def test_a_run_of_few_steps_times_those_it_has(tmp_path, capsys, max_steps):
    final = {"moods": {"test": range(6000)}}

    estimate, lines = train(tmp_path, capsys, final=final, max_steps=max_steps)

    assert estimate.left.training == 0
    assert estimate.left.evaluations > 0
    assert len(lines) == 1


def test_a_task_without_a_step_costs_the_mean(tmp_path):
    workload = measure_workload(tiny.make_trainer(tmp_path, max_steps=20))

    costs = measure_costs(workload, 0, 2, [2.0, 4.0])

    assert costs == {"moods": 0.5, "pairs": 1.0, "scores": 0.75}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "less than 1 min"),
        (59.9, "less than 1 min"),
        (100, "2 min"),
        (3599, "1 h"),
        (5100, "1 h 25 min"),
        (400_000, "111 h 7 min"),
    ],
)
def test_times_are_shown_to_the_minute(seconds, shown):
    assert format_duration(seconds) == shown
