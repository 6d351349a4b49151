"""Distillation through the whole trainer."""

import datasets
import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from torch.testing import assert_close

from modeling_minbert import MinBertForMultiTask
from tests.trainers import tiny
from tests.trainers.test_contrastive import make_trainer as make_contrastive
from trainers import (
    Distillation,
    RDrop,
    TaskCollator,
    TaskDataset,
)
from trainers.methods.extra_losses import TEACHER, TeacherRows, reduce_width

SHAPES = {"moods": (3,), "pairs": (1,), "scores": (1,)}


def draw(task, seed=0):
    """Outputs of a teacher for the training rows of a task."""
    generator = np.random.default_rng(seed)
    values = generator.normal(size=(tiny.SIZES[task], *SHAPES[task])).astype(np.float32)
    return expit(values) if task == "scores" else values


def expit(values):
    return 1 / (1 + np.exp(-values))


def teach(**options):
    return Distillation({task: draw(task) for task in SHAPES}, **options)


def train(make_trainer, *methods, model=None, own=None, **arguments):
    own = {"methods": list(methods)} | (own or {})
    settings = {"max_steps": 4, "dropout": 0.1} | arguments
    trainer = make_trainer(own=own, model=model, **settings)
    trainer.train()
    return trainer


def logs_of(trainer):
    return {key: value for entry in trainer.state.log_history for key, value in entry.items()}


def test_a_teacher_without_weight_leaves_the_bits_of_the_plain_run(make_trainer):
    plain, taught = (train(make_trainer, *methods) for methods in ((), (teach(alpha=0.0),)))

    assert_close(taught.model.state_dict(), plain.model.state_dict(), rtol=0, atol=0)
    assert logs_of(taught)["distillation_moods"] > 0


def test_it_comes_before_methods_of_several_passes(make_trainer):
    with pytest.raises(ValueError, match="every pass of RDrop; list it first"):
        train(make_trainer, RDrop(), teach())


def make_token_batch(task, packed):
    """Batch all rows of a task about tokens whose teacher's value is the id of the token."""
    rows = tiny.make_rows("moods", 8)
    lengths = np.asarray(rows["length"])
    of_tokens = task == "tags"
    labels = [[1] * length if of_tokens else [0, 1] for length in rows["length"]]
    kind = datasets.List(datasets.Value("int64"), length=-1 if of_tokens else 2)
    rows = rows.remove_columns("labels").add_column("labels", labels).cast_column("labels", kind)
    data = TaskDataset({task: rows})
    values = np.concatenate(rows["input_ids"][:]).astype(np.float32)
    data.teachers[task] = TeacherRows(np.stack([values, -values], axis=1)[:, None], lengths)
    return TaskCollator(0, packed=packed)(data.__getitems__([5, 2, 7]))


def test_values_of_tokens_lie_where_their_logits_are():
    padded = make_token_batch("tags", packed=False)
    mask = padded["attention_mask"].bool()
    assert_close(padded[TEACHER][..., 0, 0][mask], padded["input_ids"][mask].float())
    assert padded[TEACHER][~mask].isnan().all()
    packed = make_token_batch("tags", packed=True)
    assert packed[TEACHER].shape == (*packed["input_ids"].shape, 1, 2)
    assert_close(packed[TEACHER][..., 0, 0], packed["input_ids"].float())

    # of questions they lie by row
    padded, packed = (make_token_batch("answers", packed=packed) for packed in (False, True))
    assert_close(packed[TEACHER], padded[TEACHER], equal_nan=True)


def test_a_projection_of_training_has_no_teacher(tmp_path):
    trainer = make_contrastive(tmp_path, 2)
    tasks = {"near": {"problem_type": "contrastive", "num_sentences": 2, "projection": "training"}}
    model = MinBertForMultiTask(tiny.make_config(tasks))
    method = Distillation({"near": np.ones((12, 2, 12))})
    own = {"tasks": list(trainer.tasks.values()), "methods": [method]}
    with pytest.raises(ValueError, match="'near' has projection 'training'"):
        tiny.make_trainer(tmp_path / "run", model=model, own=own)


def test_narrower_vectors_keep_the_scalar_products_best():
    vectors = np.random.default_rng(0).normal(size=(50, 2, 9)) * np.arange(1, 10)
    found = reduce_width(vectors.astype(np.float32), 4).reshape(100, 4)
    expected = TruncatedSVD(4, algorithm="arpack").fit_transform(vectors.reshape(100, 9))

    np.testing.assert_allclose(found @ found.T, expected @ expected.T, rtol=1e-3, atol=1e-3)
    wider = reduce_width(vectors, 11)
    np.testing.assert_array_equal(wider[..., :9], vectors)
    assert not wider[..., 9:].any()


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ({}, {"alpha": 1.5}, "distillation_alpha=1.5; expected a number from 0 to 1"),
        ({}, {"temperature": 0}, "distillation_temperature=0; expected a number > 0"),
        ({"mood": np.zeros((40, 3))}, {}, "task 'mood'; the tasks are moods, pairs, scores"),
        ({"moods": np.zeros((39, 3))}, {}, r"\(39, 3\); expected \(40, ...\) for the 40 training"),
        ({"moods": np.zeros(40)}, {}, r"'moods': the outputs of a teacher have the shape \(40,\)"),
        ({"moods": [np.zeros((40, 3)), np.zeros((40, 2))]}, {}, r"have the shape \(40, 2\)"),
        ({}, {}, "distillation has no teacher: give the outputs of one by task"),
    ],
)
def test_outputs_and_options_are_checked(make_trainer, given, options, message):
    with pytest.raises(ValueError, match=message):
        train(make_trainer, Distillation(given, **options))
