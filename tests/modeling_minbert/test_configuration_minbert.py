"""A configuration refuses invalid models, and its file restores it."""

import json
from dataclasses import fields

import pytest
from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING, BertConfig

from modeling_minbert import TASKS, MinBertConfig, MinBertForMultiTask, parse_task

CLASSES = {"problem_type": "classification", "labels": ["down", "up"]}
SCORES = {"problem_type": "similarity", "score_range": [0, 5]}
SAME = {"problem_type": "paraphrase"}
SEPARATE = {"pair_encoding": "separate"}
CONTRASTIVE = {"problem_type": "contrastive"}
LABELS = {"problem_type": "multi_label_classification", "labels": ["a", "b", "c"]}
NUMBERS = {"problem_type": "regression", "targets": ["a", "b"]}
TAGS = {"problem_type": "token_classification", "labels": ["O", "B-PER"]}
ANSWERS = {"problem_type": "question_answering"}
WINDOWS = {"truncation": "windows", "max_length": 8}


@pytest.mark.parametrize(
    ("fields", "pooling", "head", "loss", "pair_encoding"),
    [
        (CLASSES, "pooler", "linear", "cross_entropy", None),
        (CLASSES | {"pair_encoding": "joint"}, "pooler", "linear", "cross_entropy", "joint"),
        (CLASSES | SEPARATE, "mean", "concat", "cross_entropy", "separate"),
        (SAME, "pooler", "linear", "bce", "joint"),
        (SAME | SEPARATE, "mean", "concat", "bce", "separate"),
        (SAME | SEPARATE | {"head": "cosine"}, "mean", "cosine", "bce", "separate"),
        (SCORES, "pooler", "linear", "bce", "joint"),
        (SCORES | SEPARATE, "mean", "cosine", "mse", "separate"),
        (CONTRASTIVE, "mean", "cosine", "multiple_negatives_ranking", "separate"),
    ],
)
def test_defaults_follow_the_problem(fields, pooling, head, loss, pair_encoding):
    task = parse_task("mine", fields)

    assert (task.pooling, task.head, task.loss) == (pooling, head, loss)
    assert task.pair_encoding == pair_encoding
    assert task.dropout == (0.0 if head == "cosine" else 0.3)
    if fields["problem_type"] != "classification":
        assert task.cosine_scale == (20 if fields == CONTRASTIVE else 10)


def test_tasks_of_tokens_have_the_defaults_of_bert():
    assert parse_task("mine", TAGS).dropout == 0.1
    answers = parse_task("mine", ANSWERS)
    assert (answers.dropout, answers.max_question_length, answers.doc_stride) == (0.0, None, None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (CLASSES | {"lose": "mse"}, "has no key 'lose'; did you mean 'loss'"),
        ({"problem_type": "classification"}, "labels=None"),
        (CLASSES | {"labels": ["up"]}, "at least two different names"),
        (CLASSES | {"labels": ["up", "up"]}, "at least two different names"),
        (CLASSES | {"labels": "up"}, "labels"),
        (CLASSES | {"score_range": [0, 5]}, r"no key 'score_range' \(it is for similarity tasks\)"),
        (SAME | {"labels": ["no", "maybe", "yes"]}, "two labels, no and yes"),
        ({"problem_type": "similarity"}, "score_range=None"),
        (SCORES | {"score_range": [5, 0]}, "low < high"),
        (SCORES | {"score_range": [1, 1]}, "low < high"),
        (SCORES | {"score_range": [0, 1, 2]}, "low < high"),
        (SCORES | {"score_range": [0, float("nan")]}, "low < high"),
        (SCORES | {"score_range": [0, float("inf")]}, "low < high"),
        (SCORES | {"score_range": [-100, 100]}, r"contains -100, which .* without a label"),
        (SAME | {"head": "concat"}, "use one of linear, mlp, or pair_encoding 'separate'"),
        (CLASSES | SEPARATE | {"head": "cosine"}, "choose another head"),
        (SAME | {"loss": "cosine_embedding"}, "known: bce"),
        (SCORES | {"loss": "cosine_embedding"}, "known: bce, mse"),
        (SCORES | {"loss": "cosent"}, "known: bce, mse"),
        (SCORES | {"loss": "multiple_negatives_ranking"}, "known: bce, mse"),
        (SAME | SEPARATE | {"head": "cosine", "loss": "cosent"}, "'cosent' does not fit"),
        (CONTRASTIVE | {"pair_encoding": "joint"}, "or pair_encoding 'separate'"),
        (CONTRASTIVE | {"head": "concat"}, "choose another head"),
        (CONTRASTIVE | {"loss": "mse"}, "known: multiple_negatives_ranking"),
        (CONTRASTIVE | {"num_sentences": 4}, "num_sentences=4 must be 1, 2 or 3"),
        (SAME | {"num_sentences": 2}, r"'num_sentences' \(it is for contrastive tasks\)"),
        (SAME | SEPARATE | {"projection": "training"}, "only for head cosine"),
        (SAME | SEPARATE | {"head": "cosine", "loss": "mse", "class_weights": [1, 2]}, "no effect"),
        (CLASSES | {"class_weights": [1.0, 0]}, "must all be numbers above 0"),
        (CLASSES | {"class_weights": "balanced"}, "class_weights"),
        (CLASSES | {"pooling_layer": 1.5}, "pooling_layer"),
        (CLASSES | {"dropout": "0.1"}, "dropout"),
        (SAME | {"margin": 2}, "margin=2 is a cosine"),
        (SAME | {"threshold": -2}, "threshold=-2 is a cosine"),
        (SAME | {"cosine_scale": 0}, "cosine_scale=0 must be a number above 0"),
        (SAME | {"cosine_scale": float("nan")}, "cosine_scale=nan must be a number above 0"),
        (LABELS | {"labels": ["one"]}, "at least two"),
        (LABELS | SEPARATE | {"head": "cosine"}, "use concat"),
        (LABELS | {"thresholds": [0.5]}, "must be 3 numbers"),
        (LABELS | {"pos_weight": [1.0]}, "must be 3 numbers, one for each of the labels"),
        (LABELS | {"thresholds": [0.5, 0.5, 1.5]}, "must be 3 numbers"),
        (LABELS | {"loss": "mse"}, "known: bce"),
        (NUMBERS | SEPARATE | {"head": "cosine"}, "choose another head"),
        (NUMBERS | {"loss": "bce"}, "known: mse"),
        (NUMBERS | {"targets": []}, "at least one"),
        (NUMBERS | {"targets": ["a", "a"]}, "different names"),
        (NUMBERS | {"mean": [1]}, "mean=.* a finite number for each target"),
        (NUMBERS | {"std": [1, 0]}, "std=.* above 0"),
        (NUMBERS | {"std": [1, float("nan")]}, "std=.* a finite number"),
        (CLASSES | {"loss": "bce"}, "does not fit problem_type 'classification'.*cross_entropy"),
        (CLASSES | {"temperature": 0}, "temperature=0 must be above 0"),
        (TAGS | {"labels": None}, "at least two different names"),
        (TAGS | {"pooling": "cls"}, "a token_classification task has no key 'pooling'"),
        (ANSWERS | {"doc_stride": 0}, "doc_stride=0 must be at least 1"),
        ({"problem_type": "pretraining", "pooling": "cls"}, "a pretraining task has no key"),
        (CLASSES | WINDOWS | {"window_overlap": -1}, "from 0 to half of max_length=8"),
        (CLASSES | WINDOWS | {"max_windows": 0}, "max_windows=0 must be at least 1"),
        (SAME | WINDOWS, "does not fit pair_encoding 'joint'"),
        (CONTRASTIVE | WINDOWS, "does not fit contrastive"),
    ],
)
def test_a_task_that_cannot_be_is_refused_by_name(tiny_sizes, fields, message):
    with pytest.raises(ValueError, match=message) as caught:
        MinBertConfig(**tiny_sizes, tasks={"mine": fields})

    assert str(caught.value).startswith("task 'mine': ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["", "a.b", "1st", "a b", "get", "items", "values", "train", "x" * 101]
)
def test_a_task_name_that_no_module_can_have_is_refused(tiny_sizes, name):
    with pytest.raises(ValueError, match=f"task name '{name}' must consist of"):
        MinBertConfig(**tiny_sizes, tasks={name: CLASSES})


@pytest.mark.parametrize(
    "field",
    [
        {"hidden_size": 34},
        {"hidden_size": "33"},
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
        {"add_cross_attention": True},
        {"pad_token_id": None, "position_offset": 2},
    ],
    ids=str,
)
def test_an_encoder_that_cannot_be_is_refused(tiny_sizes, field):
    with pytest.raises(StrictDataclassError, match=next(iter(field))):
        MinBertConfig(**(tiny_sizes | field))


@pytest.mark.parametrize(
    "keywords",
    [
        {"is_decoder": True},
        {"norm_bias": False},
        {"local_attention": 4},
        {"hidden_act": "nope"},
        {"num_attention_heads": 7},
        {"layer_norm_eps": -1.0},
        {"encoder_type": "roberta"},
        {"default_task": "typo"},
        {"embedding_task": "typo"},
    ],
    ids=str,
)
def test_keywords_are_checked_as_a_file_is(tiny_sizes, tasks, tmp_path, keywords):
    BertConfig(**tiny_sizes, is_decoder=False).save_pretrained(tmp_path / "stock")
    MinBertConfig(**tiny_sizes, tasks=tasks, is_decoder=False).save_pretrained(tmp_path / "own")
    (name,) = keywords
    for folder in ("own",) if name.endswith("_task") else ("stock", "own"):
        with pytest.raises((ValueError, StrictDataclassError), match=f"{name}|'typo'"):
            MinBertConfig.from_pretrained(tmp_path / folder, **keywords)


@pytest.mark.parametrize(
    ("kind", "keywords", "advice"),
    [
        ("distilbert", {"seq_classif_dropout": 0.5}, "leave it out"),
        ("distilbert", {"dropout": 0.5}, "use hidden_dropout_prob"),
        ("modernbert", {"mlp_dropout": 0.5}, "leave it out"),
        ("roberta", {"encoder_type": "bert"}, "leave it out"),
    ],
)
def test_keywords_without_effect_are_refused(tmp_path, kind, keywords, advice):
    CONFIG_MAPPING[kind]().save_pretrained(tmp_path)
    (name,) = keywords
    with pytest.raises(ValueError, match=f"{name}=.*{advice}"):
        MinBertConfig.from_pretrained(tmp_path, **keywords)
    MinBertConfig.from_pretrained(tmp_path).save_pretrained(tmp_path / "own")
    with pytest.raises(ValueError, match=f"{name}=.*{advice}"):
        MinBertConfig.from_pretrained(tmp_path / "own", **keywords)


def test_a_misspelled_embedding_task_is_refused(tiny_sizes, tasks):
    with pytest.raises(ValueError, match=r"embedding_task='ner' has no .* use one of near, echo"):
        MinBertConfig(**tiny_sizes, tasks=tasks, embedding_task="ner")


@pytest.mark.parametrize("keywords", [{"problem_type": "regression"}, {"classifier_dropout": 0.7}])
def test_settings_of_other_heads_are_refused(tmp_path, keywords):
    with pytest.raises(ValueError, match="has no effect, since every task has its own: leave it"):
        MinBertForMultiTask.from_pretrained(tmp_path, tasks={"same": SAME}, **keywords)


def test_a_file_holds_every_default_of_its_tasks(tiny_sizes, tmp_path):
    MinBertConfig(**tiny_sizes, tasks={"same": SAME}).save_pretrained(tmp_path)

    saved = json.loads((tmp_path / "config.json").read_text())["tasks"]["same"]

    assert saved.keys() == {field.name for field in fields(TASKS["paraphrase"])}
    assert saved["loss"] == "bce"


def test_tasks_given_while_loading_replace_saved_ones(tiny_sizes, tasks, tmp_path):
    config = MinBertConfig(**tiny_sizes, tasks=tasks)
    config.describe_default_task()
    config.save_pretrained(tmp_path)

    loaded = MinBertConfig.from_pretrained(tmp_path, tasks={"new": SAME})
    without = MinBertConfig.from_pretrained(tmp_path, tasks=None, num_labels=3)

    assert list(loaded.tasks) == ["new"]
    assert loaded.default_task == "new"
    assert loaded.tasks["new"]["labels"] == ["different", "paraphrase"]
    assert without.problem_type is None
    assert without.id2label == {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
    assert not hasattr(without.to_transformers(), "asked_num_labels")


@pytest.mark.parametrize("damaged", [[1], "x", {"own": None}, {"own": {"problem_type": "no"}}])
def test_damaged_tasks_of_a_file_are_named_also_if_others_replace_them(tmp_path, damaged):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "minbert", "tasks": damaged}))
    with pytest.raises(ValueError, match=r"tasks must map names to|task 'own': unknown problem"):
        MinBertConfig.from_pretrained(tmp_path, tasks={"own": SAME})


@pytest.mark.parametrize(
    ("fields", "problem_type", "names"),
    [
        (CLASSES, "single_label_classification", {0: "down", 1: "up"}),
        (SAME, "single_label_classification", {0: "different", 1: "paraphrase"}),
        (SCORES, "regression", {0: "score"}),
        (LABELS, "multi_label_classification", {0: "a", 1: "b", 2: "c"}),
        (NUMBERS, "regression", {0: "a", 1: "b"}),
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

    with pytest.raises(ValueError, match="unknown task 'nli'; known: tone, same, near, echo"):
        config.task("nli")
    with pytest.raises(ValueError, match="unknown task 'nli'"):
        MinBertConfig(**tiny_sizes, tasks=tasks, default_task="nli")


@pytest.mark.parametrize("layer", [-4, 3])
def test_a_layer_that_is_not_there_is_refused(tiny_sizes, layer):
    config = MinBertConfig(**tiny_sizes, tasks={"mine": CLASSES | {"pooling_layer": layer}})

    with pytest.raises(ValueError, match=rf"'mine': pooling_layer={layer} must be in \[-3, 2\]"):
        MinBertForMultiTask(config)


def test_every_field_declares_who_sets_it():
    for task in TASKS.values():
        sources = [task.fields_of(source) for source in ("recipe", "data", "training")]

        assert sorted(sum(sources, ())) == sorted(field.name for field in fields(task))
    by_training = ("temperature", "thresholds", "threshold_fitted")
    assert TASKS["paraphrase"].fields_of("training") == by_training
    roles = ("meaning", "reading", "decision", "loss")
    names = {
        field.name for task in TASKS.values() for field in fields(task)
        if field.name not in task.fields_of(*roles)
    }  # fmt: skip
    training_alone = {"calibrate", "class_weights", "dropout", "pos_weight", "projection"}
    of_the_rows = {"data_keys", "mean", "num_sentences", "std"}
    assert names == training_alone | of_the_rows


FACTS = {
    "labels": ("down", "up"),
    "score_range": (0, 5),
    "num_texts": 2,
    "class_counts": [1, 3],
    "num_rows": 6,
    "has_unanswerable": True,
    "max_length": 99,
}


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (
            "classification",
            {"class_weights": "balanced"},
            {"pair_encoding": "joint", "labels": ["down", "up"], "class_weights": [2, 2 / 3]},
        ),
        ("paraphrase", {"class_weights": "balanced"}, {"class_weights": [2, 2 / 3]}),
        ("token_classification", {"class_weights": "balanced"}, {"class_weights": [2, 2 / 3]}),
        ("multi_label_classification", {"pos_weight": "balanced"}, {"pos_weight": [5, 1]}),
        ("similarity", SEPARATE, SEPARATE | {"score_range": [0, 5]}),
        ("contrastive", {}, SEPARATE | {"num_sentences": 2}),
        ("token_classification", {}, {"labels": ["down", "up"]}),
        ("question_answering", {}, {"max_length": 99, "null_score_diff_threshold": 0.0}),
        ("question_answering", {"max_length": 9}, {"max_length": 9}),
        ("masked_lm", {}, {}),
    ],
)
def test_the_data_complete_the_fields_of_a_recipe(kind, given, expected):
    found = TASKS[kind].complete(given, FACTS)

    assert found["problem_type"] == kind
    assert {name: found[name] for name in expected} == expected


def test_configurations_with_equal_values_do_not_share_them():
    labels = ["down", "up"]
    tasks = {"tone": {"problem_type": "classification", "labels": labels}}
    first = MinBertConfig(tasks=tasks)
    labels.append("level")
    first.task("tone").labels.append("other")

    again = {"tone": {"problem_type": "classification", "labels": ["down", "up"]}}
    assert MinBertConfig(tasks=again).task("tone").labels == ["down", "up"]


def test_a_task_that_was_checked_is_not_checked_again(monkeypatch):
    values = {"problem_type": "classification", "labels": ["a", "b"]}
    task = parse_task("mine", values)
    monkeypatch.setattr("modeling_minbert.tasks.check_name", None)

    again = parse_task("mine", values)

    assert again == task
    assert again.labels is not values["labels"]
