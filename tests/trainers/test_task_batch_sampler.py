"""The order of rows by rank, by epoch and after a restart."""

import pytest
from accelerate import skip_first_batches
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader

from trainers import TaskBatchSampler, TaskDataset

SIZES = {"a": 13, "b": 29, "c": 7}
BATCHES = {"a": 2, "b": 3, "c": 1}


def test_describe_shows_a_line_per_task():
    sampler = TaskBatchSampler({"a": 13, "bee": 2900}, {"a": 2, "bee": 3}, num_replicas=2)

    lines = sampler.describe({"bee": 1200}).splitlines()

    assert lines[0].split() == [
        "task", "rows", "validation", "batch", "steps/epoch", "rows/epoch", "passes/epoch", "share",
    ]  # fmt: skip
    assert lines[1].split()[2] == "0"
    assert lines[2].split() == ["bee", "2,900", "1,200", "2", "x", "3", "3", "18", "0.006", "50.0%"]


class Recorder(TaskBatchSampler):
    """A sampler that notes with which epoch it was read."""

    def __iter__(self):
        self.read = self.epoch
        return super().__iter__()


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_epoch_arrives_through_accelerate(ranks, resumed, train_rows):
    sizes = {task: len(rows) for task, rows in train_rows.items()}
    sampler = Recorder(sizes, dict.fromkeys(sizes, 2), num_replicas=ranks)
    dataset = TaskDataset(train_rows, sampler)
    loader = prepare_data_loader(
        DataLoader(dataset, batch_sampler=sampler, collate_fn=list),
        num_processes=ranks,
        process_index=ranks - 1,
    )
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

    sizes = {task: len(rows) for task, rows in train_rows.items()}
    sampler = TaskBatchSampler(sizes, dict.fromkeys(sizes, 2), num_replicas=ranks)
    dataset = Reader(train_rows, sampler)
    loader = prepare_data_loader(
        DataLoader(dataset, batch_sampler=sampler, collate_fn=list),
        num_processes=ranks,
        process_index=ranks - 1,
    )
    loader.set_epoch(2)
    list(loader)
    whole, read[:] = read[:], []

    rest = skip_first_batches(loader, 5)
    rest.set_epoch(2)
    list(rest)

    assert read == whole[5:]
