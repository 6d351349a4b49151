"""Which task, which weights and which code: nothing is chosen, random or imported silently."""

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

import modeling_minbert
from modeling_minbert import MinBertForMultiTask, MinBertModel
from tests import small_run
from tests.modeling_minbert.test_remote_code import NAMES
from tests.processes import run_python
from trainers import add_lora

TONE = {"problem_type": "classification", "labels": ["down", "up"]}
NEAR = {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "separate"}
TAGS = {"problem_type": "token_classification", "labels": ["O", "B-X"]}
ENCODERS = [getattr(modeling_minbert, name) for name in NAMES]


@pytest.fixture
def save(tmp_path):
    """Return a function that saves a model with tasks and a tokenizer, and returns the folder."""

    def save(tasks):
        small_run.save_model(tmp_path / "run", tasks, ["a", "cat", "sat", "dog"])
        return tmp_path / "run"

    return save


def change_weights(folder, change):
    """Write the weights of a folder anew, each name and value as `change` returns it, or not."""
    state = load_file(folder / "model.safetensors")
    changed = (change(name, value) for name, value in state.items())
    save_file(dict(filter(None, changed)), folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("part", ["encoder.layer.1.attention.self.query", "embeddings.position"])
def test_missing_weights_of_the_encoder_are_an_error(save, part):
    folder = save({"tone": TONE, "tags": TAGS, "words": {"problem_type": "pretraining"}})
    change_weights(folder, lambda name, value: None if part in name else (name, value))

    for model_class in (*ENCODERS, AutoModel, AutoModelForSequenceClassification):
        message = rf"has no weights for \d tensors .*{part}.*config.json"
        with pytest.raises(ValueError, match=message):
            model_class.from_pretrained(folder)


def test_missing_heads_of_trained_tasks_are_an_error(save):
    folder = save({"tone": TONE, "near": NEAR, "tags": TAGS})
    change_weights(folder, lambda name, value: None if "heads.t" in name else (name, value))

    for model_class in (MinBertForMultiTask, AutoModelForSequenceClassification):
        with pytest.raises(ValueError, match=r"of its tasks tags, tone: give .*MinBertModel"):
            model_class.from_pretrained(folder)
    MinBertForMultiTask.from_pretrained(folder, tasks={"tone": TONE})  # a new head
    encoder = MinBertModel.from_pretrained(folder)
    encoder.save_pretrained(folder.parent / "encoder")
    with pytest.raises(ValueError, match="has no weights for the heads of its tasks tags, tone"):
        MinBertForMultiTask.from_pretrained(folder.parent / "encoder")


def test_a_checkpoint_with_lora_names_the_run(save, tmp_path):
    pytest.importorskip("peft")
    model = MinBertForMultiTask.from_pretrained(save({"tone": TONE}))
    add_lora(model, {"r": 2}, trained=("heads.",))
    model.save_pretrained(tmp_path / "checkpoint-3")

    for model_class in (AutoModel, AutoModelForMaskedLM, MinBertForMultiTask):
        with pytest.raises(ValueError, match=r"query.*LoRA: load the folder of the finished run"):
            model_class.from_pretrained(tmp_path / "checkpoint-3")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        pytest.param(
            ["minbert_cli", "predict", ".", "a cat", "--device", "cpu"],
            "label\tscore\ttext\n",
            marks=pytest.mark.slow,
        ),
        (["minbert_cli.finetune", "nothing.yaml"], "nothing.yaml"),
    ],
)
def test_a_command_in_the_folder_of_a_run_has_its_own_code(save, argv, expected):
    folder = save({"tone": TONE})
    for name in ("modeling_minbert.py", "torch.py", "configuration_minbert.py"):
        (folder / name).write_text("raise SystemExit('the code of the folder ran')\n")
    done = run_python("-m", *argv, folder=folder, status=None)

    assert expected in done.stdout + done.stderr
    assert "the code of the folder ran" not in done.stderr
