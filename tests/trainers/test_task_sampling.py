"""Which task comes at which step: draws, schedules, lengths of epochs, restarts."""

import numpy as np
import pytest
from accelerate import skip_first_batches
from accelerate.data_loader import SkipBatchSampler, prepare_data_loader
from scipy.stats import chisquare
from torch.utils.data import DataLoader

from trainers import TaskBatchSampler, TaskDataset, TaskSampling

SIZES = {"a": 400, "b": 100, "c": 25}
STARTS = {"a": 0, "b": 400, "c": 500}
BATCHES = {"a": 4, "b": 4, "c": 4}
WEIGHTS = {"a": 1, "b": 5, "c": 2}
STRATEGIES = {
    "round_robin": {},
    "proportional": {},
    "weighted": {"sampling_weights": WEIGHTS},
}


def make(strategy, sizes=SIZES, batches=BATCHES, **options):
    sampling = TaskSampling(strategy, **STRATEGIES[strategy])
    return TaskBatchSampler(sizes, batches, sampling=sampling, **options)


def task_of(row):
    return "a" if row < 400 else "b" if row < 500 else "c"


def read(sampler, epoch):
    sampler.set_epoch(epoch)
    return list(sampler)


def tasks_of(batches):
    """The tasks of each batch, in order and once each."""
    return ["".join(dict.fromkeys(map(task_of, batch))) for batch in batches]


def count_tasks(sampler, epoch):
    names = "".join(tasks_of(read(sampler, epoch)))
    return [names.count(task) for task in SIZES]


# By hand: p of each task, with 100, 25 and 6.25 batches in a pass.
PROBABILITIES = {
    "proportional": [400 / 525, 100 / 525, 25 / 525],
    "weighted": [1 / 8, 5 / 8, 2 / 8],
}


@pytest.mark.parametrize("strategy", PROBABILITIES)
def test_tasks_are_drawn_with_their_probabilities(strategy):
    sampler = make(strategy, steps_per_epoch=20_000)
    expected = np.asarray(PROBABILITIES[strategy])

    counts = np.bincount(sampler.choose_tasks(0))

    assert sampler.probabilities == pytest.approx(expected)
    assert chisquare(counts, 20_000 * expected).pvalue > 0.01


def test_the_round_robin_is_the_one_it_has_always_been():
    sampler = TaskBatchSampler(
        {"a": 5, "b": 7, "c": 3}, {"a": 2, "b": 2, "c": 1}, seed=3, steps_per_epoch=5
    )

    assert [read(sampler, epoch) for epoch in range(3)] == [
        [[4, 2], [7, 6], [12], [1, 3], [9, 5]],
        [[14], [0, 3], [10, 11], [13], [1, 4]],
        [[8, 10], [13], [0, 2], [9, 8], [14]],
    ]


@pytest.mark.parametrize(
    ("strategy", "shortest", "longest"),
    [
        ("round_robin", 3 * 6, 3 * 100),
        ("proportional", 131, 132),  # 525 rows in batches of four
        ("weighted", 25, 800),  # 6.25 / (2 / 8), 100 / (1 / 8)
    ],
)
def test_the_policy_sets_the_length_of_all_epochs(strategy, shortest, longest):
    for stop, steps in (("shortest", shortest), ("longest", longest), (77, 77)):
        sampler = make(strategy, steps_per_epoch=stop)

        assert sampler.steps == len(sampler) == steps
        assert {len(read(sampler, epoch)) for epoch in range(3)} == {steps}


@pytest.mark.parametrize("by_length", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_ranks_see_the_rows_of_one_with_twice_the_batch(strategy, by_length):
    lengths = {task: np.arange(size) for task, size in SIZES.items()} if by_length else None
    two = make(strategy, batches=dict.fromkeys(SIZES, 2), num_replicas=2, lengths=lengths)
    one = make(strategy, lengths=lengths)

    for epoch in (0, 2):
        left, right = (read(sampler, epoch) for sampler in (one, two))
        joined = [first + second for first, second in zip(right[::2], right[1::2], strict=True)]
        assert [sorted(batch) for batch in joined] == [sorted(batch) for batch in left]


@pytest.mark.parametrize("options", ["rows", "lengths", "text"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_go_on_over_epochs_and_restarts(strategy, options):
    lengths = {task: 3 + np.arange(size) % 7 for task, size in SIZES.items()}
    more = {
        "rows": {},
        "lengths": {"lengths": lengths},
        "text": {"changing": ["b"]},
    }[options]
    rows = {task: [] for task in SIZES}
    total = sum(SIZES.values())
    sampler = make(strategy, steps_per_epoch=29, **more)

    for epoch in range(30):
        for batch in read(sampler, epoch):
            for row in batch:
                rows[task_of(row % total)].append(row)
    # a fresh sampler, as in a resumed run, needs no earlier epoch
    again = make(strategy, steps_per_epoch=29, **more)
    again.set_epoch(17)
    assert list(SkipBatchSampler(again, 11)) == read(sampler, 17)[11:]

    for task, seen in rows.items():
        size, start = SIZES[task], STARTS[task]
        assert len(seen) > size / 2
        for number, first in enumerate(range(0, len(seen) - size + 1, size)):
            one_pass = sorted(seen[first : first + size])
            shift = number * total if options == "text" and task == "b" else 0
            assert one_pass == list(range(start + shift, start + shift + size))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_shares_equal_the_epoch_and_the_run(strategy):
    sampler = make(strategy, num_replicas=2, steps_per_epoch=50)

    for epoch in (0, 1, 3):
        counts = count_tasks(sampler, epoch)
        shares = sampler.shares().values()
        assert [2 * share.steps for share in shares] == counts
        assert [share.rows for share in shares] == [4 * count for count in counts]
        assert [share.share for share in shares] == pytest.approx(np.divide(counts, sum(counts)))


def test_the_table_names_the_drawn_epoch():
    sampler = make("weighted", steps_per_epoch=1000)
    sampler.set_epoch(4)

    first, header, *lines = sampler.describe({}).splitlines()

    assert first == "weighted sampling, epoch 5"
    assert header.split()[0] == "task"
    assert [int(line.split()[6].replace(",", "")) for line in lines] == [
        share.steps for share in sampler.shares().values()
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"task_sampling": "proportional", "sampling_weights": {"a": 1}},
            "use task_sampling: weighted",
        ),
        (
            {"task_sampling": "weighted", "sampling_weights": {"a": 1, "b": 0}},
            "sampling_weights: b=0; expected a number > 0",
        ),
        ({"task_sampling": "propotional"}, "'propotional'; did you mean 'proportional'"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    """The messages of others are among the frozen ones."""
    with pytest.raises(ValueError, match=message):
        TaskSampling(**arguments)


@pytest.mark.parametrize("steps", ["often", 0, True])
def test_lengths_of_epochs_are_checked(steps):
    with pytest.raises(ValueError, match=f"steps_per_epoch={steps!r}; expected 'shortest'"):
        make("proportional", steps_per_epoch=steps)


class Recorder(TaskBatchSampler):
    """A sampler that notes with which epoch it was read."""

    def __iter__(self):
        self.read = self.epoch
        return super().__iter__()


def make_loader(train_rows, ranks, dataset=TaskDataset):
    """Return a sampler, and a loader of the last rank that reads it through accelerate."""
    sizes = {task: len(rows) for task, rows in train_rows.items()}
    sampler = Recorder(sizes, dict.fromkeys(sizes, 2), num_replicas=ranks)
    rows = dataset(train_rows, sampler)
    loader = DataLoader(rows, batch_sampler=sampler, collate_fn=list)
    loader = prepare_data_loader(loader, num_processes=ranks, process_index=ranks - 1)
    return sampler, loader


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_epoch_arrives_through_accelerate(ranks, resumed, train_rows):
    sampler, loader = make_loader(train_rows, ranks)
    if resumed:
        loader = skip_first_batches(loader, 3)

    loader.set_epoch(4)
    next(iter(loader))

    assert sampler.read == 4


@pytest.mark.parametrize("ranks", [1, 2])
def test_skipping_gives_the_rest_of_the_epoch_and_reads_no_skipped_row(ranks, train_rows):
    read = []

    class Reader(TaskDataset):
        def __getitems__(self, indices):
            read.append(list(indices))
            return super().__getitems__(indices)

    _, loader = make_loader(train_rows, ranks, Reader)
    loader.set_epoch(2)
    list(loader)
    whole, read[:] = read[:], []

    rest = skip_first_batches(loader, 5)
    rest.set_epoch(2)
    list(rest)

    assert read == whole[5:]
