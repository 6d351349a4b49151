"""A configuration refuses what the model cannot compute, and its file restores it."""

import json

import pytest
import transformers
from huggingface_hub.errors import StrictDataclassError

from modeling_minbert import MinBertConfig, MinBertForMultiTask, MinBertModel, MinBertTask

CLASSES = {"problem_type": "classification", "labels": ["down", "up"]}
SCORES = {"problem_type": "similarity", "score_range": [0, 5]}
SAME = {"problem_type": "paraphrase"}
SEPARATE = {"pair_encoding": "separate"}
MLM = {"problem_type": "masked_lm"}
CONTRASTIVE = {"problem_type": "contrastive"}
TAGS = {"problem_type": "token_classification", "labels": ["O", "B-PER"]}
ANSWERS = {"problem_type": "question_answering"}
RANKED = SCORES | SEPARATE | {"loss": "multiple_negatives_ranking"}


@pytest.mark.parametrize(
    ("fields", "pooling", "head", "loss", "pair_encoding"),
    [
        (CLASSES, "pooler", "linear", "cross_entropy", None),
        (CLASSES | {"pair_encoding": "joint"}, "pooler", "linear", "cross_entropy", "joint"),
        (CLASSES | SEPARATE, "mean", "concat", "cross_entropy", "separate"),
        (SAME, "pooler", "linear", "bce", "joint"),
        (SAME | SEPARATE, "mean", "concat", "bce", "separate"),
        (
            SAME | SEPARATE | {"head": "cosine"},
            "mean",
            "cosine",
            "bce",
            "separate",
        ),
        (SCORES, "pooler", "linear", "mse", "joint"),
        (SCORES | SEPARATE, "mean", "cosine", "mse", "separate"),
        (CONTRASTIVE, "mean", "cosine", "multiple_negatives_ranking", "separate"),
        (TAGS, None, "linear", "cross_entropy", None),
        (ANSWERS, None, "linear", "cross_entropy", "joint"),
    ],
)
def test_defaults_follow_the_problem(fields, pooling, head, loss, pair_encoding):
    task = MinBertTask(**fields)

    assert (task.pooling, task.head, task.loss) == (pooling, head, loss)
    assert task.pair_encoding == pair_encoding
    own = {"question_answering": 0.0, "token_classification": 0.1}
    assert task.dropout == own.get(task.problem_type, 0.0 if head == "cosine" else 0.3)
    assert task.cosine_scale == (20 if fields == CONTRASTIVE else 10)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "problem_type is missing"),
        ({"problem_type": "ranking"}, "ranking"),
        (CLASSES | {"lose": "mse"}, "unknown key 'lose'; known keys: problem_type, labels"),
        ({"problem_type": "classification"}, "labels=None"),
        (CLASSES | {"labels": ["up"]}, "at least two different names"),
        (CLASSES | {"labels": ["up", "up"]}, "at least two different names"),
        (CLASSES | {"labels": "up"}, "labels"),
        (CLASSES | {"score_range": [0, 5]}, "only a similarity has one"),
        (SAME | {"labels": ["no", "maybe", "yes"]}, "two labels, no and yes"),
        (SAME | {"score_range": [0, 5]}, "only a similarity has one"),
        (SCORES | {"labels": ["near", "far"]}, "a similarity has a score_range instead"),
        ({"problem_type": "similarity"}, "score_range=None"),
        (SCORES | {"score_range": [5, 0]}, "low < high"),
        (SCORES | {"score_range": [1, 1]}, "low < high"),
        (SCORES | {"score_range": [0, 1, 2]}, "low < high"),
        (SCORES | {"score_range": [0, float("nan")]}, "low < high"),
        (SCORES | {"score_range": [0, float("inf")]}, "low < high"),
        (SCORES | {"score_range": [-100, 100]}, r"holds -100, which .* no label: rescale"),
        (CLASSES | {"head": "cosine"}, "use one of linear, mlp, or pair_encoding 'separate'"),
        (SAME | {"head": "concat"}, "use one of linear, mlp, or pair_encoding 'separate'"),
        (SAME | SEPARATE | {"head": "mlp"}, "use one of concat, cosine"),
        (CLASSES | {"loss": "mse"}, "allowed are cross_entropy"),
        (CLASSES | SEPARATE | {"head": "cosine"}, "choose another head"),
        (SAME | {"loss": "cosine_embedding"}, "allowed are bce"),
        (SCORES | {"loss": "cosine_embedding"}, "allowed are mse, bce, cross_entropy"),
        (SCORES | {"loss": "cosent"}, "allowed are mse, bce, cross_entropy"),
        (SCORES | {"loss": "multiple_negatives_ranking"}, "allowed are mse, bce, cross_entropy"),
        (
            SCORES | {"loss": "cross_entropy", "score_range": [0, 4.5]},
            r"score_range=\[0, 4.5\]: .* both must be whole numbers",
        ),
        (SAME | SEPARATE | {"head": "cosine", "loss": "cosent"}, "'cosent' does not fit"),
        (CONTRASTIVE | {"labels": ["no", "yes"]}, "a contrastive task learns without labels"),
        (CONTRASTIVE | {"score_range": [0, 5]}, "only a similarity has one"),
        (CONTRASTIVE | {"pair_encoding": "joint"}, "or pair_encoding 'separate'"),
        (CONTRASTIVE | {"head": "concat"}, "choose another head"),
        (CONTRASTIVE | {"loss": "mse"}, "allowed are multiple_negatives_ranking"),
        (CONTRASTIVE | {"num_sentences": 4}, "num_sentences=4 must be 1, 2 or 3"),
        (CONTRASTIVE | {"projection": "never"}, "projection"),
        (SAME | {"num_sentences": 2}, "num_sentences=2 is only for a contrastive task"),
        (SAME | SEPARATE | {"symmetric": True}, "symmetric=True is only for loss multiple_neg"),
        (RANKED | {"positive_score": 6}, "positive_score=6 must be above 0 and at most 5"),
        (SCORES | SEPARATE | {"positive_score": 4}, "positive_score=4 is only for a similarity"),
        (SAME | SEPARATE | {"projection": "always"}, "projection='always' is only for head cosine"),
        (SAME | {"class_weights": [1, 2]}, "only for a classification: leave it out"),
        (CLASSES | {"class_weights": [1.0]}, "must be 2 numbers, one for each of the labels"),
        (CLASSES | {"class_weights": [1.0, 0]}, "must all be numbers above 0"),
        (CLASSES | {"class_weights": "balanced"}, "class_weights"),
        (CLASSES | {"pooling_layer": 1.5}, "pooling_layer"),
        (CLASSES | {"pooling": "first"}, "first"),
        (CLASSES | {"dropout": 1.5}, r"dropout=1.5 must be in \[0, 1\]"),
        (CLASSES | {"dropout": "0.1"}, "dropout"),
        (SAME | {"margin": 2}, "margin=2 is a cosine"),
        (SAME | {"threshold": -2}, "threshold=-2 is a cosine"),
        (SAME | {"cosine_scale": 0}, "cosine_scale=0 must be above 0"),
        (
            MLM | {"labels": ["a", "b"]},
            r"labels=\['a', 'b'\]: a masked_lm task has BERT's own head",
        ),
        (TAGS | {"labels": None}, "at least two different names"),
        (TAGS | {"pooling": "cls"}, "pooling='cls': this is a token_.*: its head reads every tok"),
        (TAGS | {"head": "mlp"}, "leave head out"),
        (TAGS | {"head": "cosine"}, "leave head out"),
        (TAGS | {"loss": "bce"}, "allowed are cross_entropy"),
        (TAGS | {"truncation": "tail"}, "long texts are read in windows, uncut; leave trunc"),
        (TAGS | {"class_weights": [1, 2]}, "only for a classification"),
        (TAGS | {"score_range": [0, 1]}, "only a similarity has one"),
        (ANSWERS | SEPARATE, "all texts are in one sequence; leave pair_encoding out"),
        (ANSWERS | {"labels": ["a", "b"]}, "positions for labels, leave their names out"),
        (MLM | {"score_range": [0, 5]}, r"score_range=\[0, 5\]: .* leave score_range out"),
        (
            {"problem_type": "next_sentence"} | SEPARATE,
            "a next_sentence .* leave pair_encoding out",
        ),
        ({"problem_type": "pretraining", "pooling": "cls"}, "a pretraining .* leave pooling out"),
        (MLM | {"head": "linear"}, "leave head out"),
        (MLM | {"loss": "cross_entropy"}, "leave loss out"),
    ],
)
def test_a_task_that_cannot_be_is_refused_by_name(tiny_sizes, fields, message):
    with pytest.raises(ValueError, match=message) as caught:
        MinBertConfig(**tiny_sizes, tasks={"mine": fields})

    assert str(caught.value).startswith("task 'mine': ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a.b", "1st", "a b", "keys", "items", "pop", "train"])
def test_a_task_name_that_no_module_can_have_is_refused(tiny_sizes, name):
    with pytest.raises(ValueError, match=f"task name '{name}' must be"):
        MinBertConfig(**tiny_sizes, tasks={name: CLASSES})


@pytest.mark.parametrize(
    "field",
    [
        {"hidden_size": 34},
        {"hidden_size": "33"},
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
        {"add_cross_attention": True},
    ],
    ids=str,
)
def test_an_encoder_that_cannot_be_is_refused(tiny_sizes, field):
    with pytest.raises(StrictDataclassError, match=next(iter(field))):
        MinBertConfig(**(tiny_sizes | field))


def test_a_file_restores_tasks_whatever_their_order(tiny_sizes, tasks, tmp_path):
    config = MinBertConfig(**tiny_sizes, tasks=tasks)

    config.save_pretrained(tmp_path)
    loaded = MinBertConfig.from_pretrained(tmp_path)

    assert list(json.loads((tmp_path / "config.json").read_text())["tasks"]) != list(tasks)
    assert loaded.tasks == config.tasks
    assert loaded.default_task == config.default_task == "tone"
    assert loaded.task("near") == config.task("near")


def test_a_file_holds_every_default_of_its_tasks(tiny_sizes, tmp_path):
    MinBertConfig(**tiny_sizes, tasks={"same": SAME}).save_pretrained(tmp_path)

    saved = json.loads((tmp_path / "config.json").read_text())["tasks"]["same"]

    assert saved.keys() == MinBertTask.__dataclass_fields__.keys()
    assert saved["loss"] == "bce"


@pytest.mark.parametrize("kind", ["masked_lm", "next_sentence", "pretraining"])
def test_a_task_of_pre_training_comes_back_from_its_file_without_choices(
    tiny_sizes, tmp_path, kind
):
    config = MinBertConfig(**tiny_sizes, tasks={"text": {"problem_type": kind}})
    config.save_pretrained(tmp_path)

    loaded = MinBertConfig.from_pretrained(tmp_path)

    chosen = {key for key, value in loaded.tasks["text"].items() if value is not None}
    assert chosen == {
        "problem_type",
        "truncation",
        "dropout",
        "margin",
        "cosine_scale",
        "threshold",
        "threshold_fitted",
        "symmetric",
        "pooling_layer",
    }
    assert loaded.tasks == config.tasks
    assert loaded.task("text") == MinBertTask(problem_type=kind)


def test_the_default_task_is_one_of_pre_training_only_if_all_are(tiny_sizes):
    alone = MinBertConfig(**tiny_sizes, tasks={"text": MLM, "more": MLM})
    beside = MinBertConfig(**tiny_sizes, tasks={"text": MLM, "tone": CLASSES, "same": SAME})

    assert alone.default_task == "text"
    assert beside.default_task == "tone"
    with pytest.raises(ValueError, match=r"'text' is a masked_lm.*: use one of tone, same"):
        MinBertConfig(**tiny_sizes, tasks=beside.tasks, default_task="text")


def test_a_task_of_pre_training_takes_no_label_names_over(tiny_sizes):
    config = MinBertForMultiTask(MinBertConfig(**tiny_sizes, tasks={"tone": CLASSES})).config
    config.tasks, config.default_task = {"text": MLM}, None

    config = MinBertForMultiTask(config).config

    assert config.problem_type is None
    assert config.id2label == {0: "LABEL_0", 1: "LABEL_1"}


def test_tasks_given_while_loading_replace_those_of_the_file(tiny_sizes, tasks, tmp_path):
    MinBertConfig(**tiny_sizes, tasks=tasks).save_pretrained(tmp_path)

    loaded = MinBertConfig.from_pretrained(tmp_path, tasks={"new": SAME})

    assert list(loaded.tasks) == ["new"]
    assert loaded.default_task == "new"
    assert loaded.tasks["new"]["labels"] == ["different", "paraphrase"]


def test_unused_keywords_come_back(tiny_sizes, tmp_path):
    MinBertConfig(**tiny_sizes).save_pretrained(tmp_path)

    config, rest = MinBertConfig.from_pretrained(
        tmp_path, tasks={"same": SAME}, return_unused_kwargs=True, unknown=1, hidden_act="relu"
    )

    assert rest == {"unknown": 1}
    assert config.hidden_act == "relu"
    assert config.default_task == "same"


def test_tasks_assigned_later_are_checked_by_the_model(tiny_sizes):
    config = MinBertConfig(**tiny_sizes)
    config.tasks = {"same": SAME, "keys": SAME}

    with pytest.raises(ValueError, match="task name 'keys'"):
        MinBertForMultiTask(config)

    config.tasks = {"same": SAME}
    assert MinBertForMultiTask(config).config.tasks["same"]["head"] == "linear"


@pytest.mark.parametrize(
    ("fields", "problem_type", "names"),
    [
        (CLASSES, "single_label_classification", {0: "down", 1: "up"}),
        (SAME, "multi_label_classification", {0: "paraphrase"}),
        (SCORES, "regression", {0: "score"}),
    ],
)
def test_the_default_task_names_the_labels(tiny_sizes, fields, problem_type, names):
    config = MinBertForMultiTask(MinBertConfig(**tiny_sizes, tasks={"mine": fields})).config

    assert config.problem_type == problem_type
    assert config.id2label == names
    assert config.label2id == {name: index for index, name in names.items()}
    assert config.num_labels == len(names)


def test_an_unknown_task_is_answered_with_the_known_ones(tiny_sizes, tasks):
    config = MinBertConfig(**tiny_sizes, tasks=tasks)

    with pytest.raises(ValueError, match="unknown task 'nli'; known tasks: tone, same, near, echo"):
        config.task("nli")
    with pytest.raises(ValueError, match="unknown task 'nli'"):
        MinBertConfig(**tiny_sizes, tasks=tasks, default_task="nli")


@pytest.mark.parametrize("architecture", ["Roberta", "GPT2", "DistilBert"])
def test_a_checkpoint_of_another_architecture_is_refused(architecture, tmp_path):
    config = getattr(transformers, f"{architecture}Config")()
    config.save_pretrained(tmp_path)

    with pytest.raises(ValueError, match="minBERT loads") as caught:
        MinBertModel.from_pretrained(tmp_path)

    assert f"{tmp_path} is a {config.model_type!r} checkpoint" in str(caught.value)


def test_a_pair_belongs_together_from_four_fifths_of_the_range():
    assert MinBertTask(**RANKED).positive_score == 4
    assert MinBertTask(**RANKED | {"score_range": [1, 6], "positive_score": 3}).positive_score == 3


@pytest.mark.parametrize("layer", [-4, 3])
def test_a_layer_that_is_not_there_is_refused(tiny_sizes, layer):
    config = MinBertConfig(**tiny_sizes, tasks={"mine": CLASSES | {"pooling_layer": layer}})

    with pytest.raises(ValueError, match=rf"'mine': pooling_layer={layer} must be in \[-3, 2\]"):
        MinBertForMultiTask(config)


def test_pipelines_get_a_task_with_labels(tiny_sizes):
    config = MinBertConfig(**tiny_sizes, tasks={"near": CONTRASTIVE, "tone": CLASSES, "text": MLM})

    assert config.default_task == "tone"
    without = MinBertConfig(**tiny_sizes, tasks={"text": MLM, "near": CONTRASTIVE})
    assert without.default_task == "near"
    with pytest.raises(
        ValueError, match=r"default_task='near' is a contrastive, .* use one of tone"
    ):
        MinBertConfig(**tiny_sizes, tasks=config.tasks, default_task="near")
