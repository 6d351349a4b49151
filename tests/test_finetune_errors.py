"""User errors: one line with the place and a remedy, and nothing written."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel, RobertaConfig, RobertaModel

from minbert_cli import finetune
from minbert_cli.arguments import FinetuneArguments, ProgramTrainingArguments
from minbert_cli.recipe import parse_recipe
from minbert_cli.run_folder import describe_settings, finish_run, start_run
from modeling_minbert import MinBertConfig, MinBertForMultiTask
from tests import small_run

ROOT = Path(__file__).parents[1]


@pytest.fixture
def recipe(tmp_path):
    """Return a recipe that works, with its files."""
    small_run.write_files(tmp_path)
    return small_run.make_recipe(tmp_path)


@pytest.fixture
def refused(tmp_path, recipe, capsys):
    """Run a recipe that is refused; returns the line."""

    def refused(*flags, path=None, status=1):
        folder = Path(recipe["output_dir"])
        before = read_tree(folder)
        argv = [path or small_run.write_recipe(tmp_path, recipe), *flags]
        with pytest.raises(SystemExit) as exited:
            finetune.main(argv)
        captured = capsys.readouterr()
        assert exited.value.code == status
        assert read_tree(folder) == before
        return only_error(captured.err)

    return refused


def only_error(text):
    """Return the one line that is an error; it is the last one and there is no traceback."""
    lines = text.strip().splitlines()
    assert lines[-1].startswith("minbert finetune: error: ")
    assert sum("error" in line.lower() for line in lines) == 1
    assert "Traceback" not in text
    return lines[-1]


def read_tree(folder):
    """Return the content of a folder, or None if there is none."""
    if not folder.exists():
        return None
    paths = [folder, *folder.rglob("*")]
    return {str(path): path.read_bytes() if path.is_file() else None for path in paths}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lerning_rate": 1}, "unknown key 'lerning_rate'; did you mean 'learning_rate'"),
        ({"learning_rate": "abc"}, "learning_rate='abc'; expected a number"),
        ({"freeze_encoder": "x"}, "freeze_encoder='x'; expected true or false"),
        ({"tasks": {}}, "tasks is empty; name at least one"),
        ({"tasks": ["sst"]}, r"tasks=\['sst'\]; expected keys and values"),
        ({"tasks": "moods"}, "tasks='moods'; expected keys and values"),
        ({"tasks": {1: {"dataset": "sample_sst"}}}, "tasks: 1 is not a name; put it in quotes"),
        ({"tasks": {"sst": "sample_sst"}}, "task 'sst': expected keys and values"),
        ({"tasks": {"sst": None}}, "task 'sst': expected keys and values"),
        (
            {"freeze_encoder": True},
            "task 'scores': freeze_encoder trains only the heads.*use head: concat",
        ),
        ({"max_length": 0}, "max_length=0 must be from 8 to the 32 positions"),
        ({"max_length": 33}, "max_length=33 must be from 8 to the 32 positions"),
        ({"per_device_train_batch_size": 0}, "batch"),
        (
            {"per_device_eval_batch_size": 0},
            "per_device_eval_batch_size=0; expected a whole number from 1",
        ),
        (
            {"gradient_accumulation_steps": 0},
            "gradient_accumulation_steps=0; expected a whole number from 1",
        ),
        (
            {"steps_per_epoch": "banana"},
            "steps_per_epoch='banana'; expected 'shortest', 'longest' or a number",
        ),
        ({"steps_per_epoch": 0}, "steps_per_epoch=0; expected 'shortest', 'longest' or a number"),
        (
            {"metric_for_best_model": "nonsense"},
            "metric_for_best_model: unknown metric 'nonsense'; known",
        ),
        (
            {"early_stopping_patience": 2, "eval_strategy": "no"},
            "early_stopping_patience=2 needs load_best_model_at_end",
        ),
        (
            {"early_stopping_patience": 0},
            "early_stopping_patience=0; expected a whole number of at least 1",
        ),
        ({"report_examples": -1}, "report_examples=-1; expected a whole number of at least 0"),
        ({"exponential_lr_gamma": 2}, r"exponential_lr_gamma=2.0; expected in \(0, 1\]"),
        (
            {"model_config": {"hiden_size": 12}},
            "model_config: unknown key 'hiden_size'; did you mean 'hidden_size'",
        ),
        ({"model_config": {"hidden_size": 13}}, "model_config: hidden_size=13 is not divisible by"),
        ({"model_config": {"hidden_size": float("nan")}}, "model_config: .*hidden_size.*nan"),
        ({"model_config": {"type_vocab_size": 1}}, "type_vocab_size=1.*pairs.*2"),
        ({"model_config": {"vocab_size": 7}}, "vocab_size=7 is too small"),
        ({"model_name_or_path": "user/model"}, "'user/model' determines the sizes"),
        ({"load_best_model_at_end": True, "save_strategy": "no"}, "requires the save and eval"),
        ({"length_column_name": "x", "train_sampling_strategy": "group_by_length"}, "column 'x'"),
    ],
)
def test_values_of_a_recipe(recipe, refused, change, message):
    recipe |= change

    assert_matches(refused(), message)


def assert_matches(line, message):
    """Compare with a helpful report."""
    assert re.search(message, line), line


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("moods", {"pooling": "first"}, "task 'moods': .*first"),
        (
            "moods",
            {"colour": 1},
            "task 'moods': unknown key 'colour'; known: auxiliary, batch_size",
        ),
        ("moods", {"threshold_fitted": True}, "task 'moods': unknown key 'threshold_fitted'"),
        ("moods", {"batch_size": 0}, "task 'moods': batch_size=0; expected a whole number"),
        ("moods", {"loss_weight": -1}, "task 'moods': loss_weight=-1; expected a number > 0"),
        ("moods", {"head": "cosine"}, "task 'moods': head='cosine' does not fit"),
        ("moods", {"pair_encoding": "joint"}, "pair_encoding='joint', but the rows are single"),
        ("moods", {"text_columns": ["sentence"]}, "moods-train.tsv: no column .'sentence'"),
        (
            "moods",
            {"labels": ["good", "awful"]},
            "moods-train.tsv: .*'bad' is not among the labels",
        ),
        (
            "scores",
            {"score_range": [3, 5]},
            "scores-train.jsonl: .*out of range; allowed is 3 to 5",
        ),
        ("pairs", {"train_file": "gone.tsv"}, "gone.tsv: there is no such file; check the path"),
        (
            "pairs",
            {"problem_type": "regresion"},
            "task 'pairs': unknown problem_type 'regresion'",
        ),
        ("pairs", {"dataset": "quora"}, "task 'pairs': give exactly one source of rows"),
    ],
)
def test_keys_of_a_task(recipe, refused, task, change, message):
    recipe["tasks"][task] |= change

    assert_matches(refused(), message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "pairs-train.tsv: the file is empty"),
        ("id\ta\tb\tsame\n", "pairs-train.tsv: the file has no rows"),
        ("id^a^b^same\n1^x^y^0\n", r"pairs-train.tsv: no column \['a', 'b', 'same'\]"),
        ("id\ta\tb\tsame\n1\tx\ty\t2\n", "pairs-train.tsv: .*line 2: label '2' is out of range"),
        ("id\ta\tb\n1\tx\ty\n", r"pairs-train.tsv: no column \['same'\]"),
    ],
)
def test_files_that_cannot_be_used(recipe, refused, text, message):
    Path(recipe["tasks"]["pairs"]["train_file"]).write_text(text)

    assert_matches(refused("--tasks", "pairs"), message)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tasks", "moods,quora"], r"has no 'quora'; known: moods, pairs, scores"),
        (["--lerning_rate", "1"], "unknown flag --lerning_rate; did you mean '--learning_rate'"),
        (["--resume_from_checkpoint", "gone"], "resume_from_checkpoint='gone' is not a folder"),
        (["--resume_from_checkpoint", "."], "resume_from_checkpoint='.' cannot be used: .*missing"),
    ],
)
def test_flags(refused, flags, message):
    status = 1 if "resume" in flags[0] else 2
    assert_matches(refused(*flags, status=status), message)


def test_a_missing_recipe(refused):
    assert_matches(refused(path="gone.yaml"), "recipe 'gone.yaml' is not a file")


def test_a_task_that_is_there_twice(tmp_path, refused):
    path = tmp_path / "twice.yaml"
    path.write_text("tasks:\n  sst: {dataset: sample_sst}\n  sst: {dataset: sample_sst}\n")

    assert_matches(refused(path=str(path)), "twice.yaml:3: duplicate key 'sst'")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_length": 33}, "max_length=33 must be from 8 to the 32 positions"),
        (
            {"metric_for_best_model": "nonsense"},
            "metric_for_best_model: unknown metric 'nonsense'; known",
        ),
        (
            {"metric_for_best_model": "moods_f1"},
            "metric_for_best_model: unknown metric 'moods_f1'; did you mean 'moods_macro_f1'",
        ),
        ({"steps_per_epoch": "banana"}, "steps_per_epoch='banana'; expected 'shortest'"),
        (
            {"model_config": {"hiden_size": 12}},
            "model_config: unknown key 'hiden_size'; did you mean 'hidden_size'",
        ),
        ({"model_config": {"hidden_size": 13}}, "hidden_size=13 is not divisible by"),
        ({"freeze_encoder": True}, "task 'scores': freeze_encoder trains only the heads"),
        ({"freeze_layers": 2}, "task .scores. has nothing to learn under freeze_layers"),
        ({"lora": {"ranks": 8}}, "lora: .*ranks"),
        ({"lora": {"r": 4, "target_modules": ["nothing"]}}, "lora: .*nothing"),
        (
            {"early_stopping_patience": 2, "eval_strategy": "no"},
            "needs load_best_model_at_end",
        ),
        (
            {"model_name_or_path": "gone", "model_config": None},
            "'gone' is not a folder and cannot be loaded from the Hub",
        ),
        (
            {"task_sampling": "weighted", "sampling_weights": {"moods": 1}},
            "sampling_weights names moods; expected one weight for each of",
        ),
        ({"r_drop": 1.0, "task_sampling": "mixed", "optim": "lomo"}, "mixed adds up the gradients"),
    ],
)
def test_keys_are_checked_before_rows_are_read(recipe, refused, change, message):
    for name in ("moods", "pairs"):
        Path(recipe["tasks"][name]["train_file"]).write_text("neither\trows\tnor\tcolumns\n")

    recipe |= change

    assert_matches(refused(), message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"optim_args": "nonsense"}, "optim=.*optim_args='nonsense': .*written name=value"),
        ({"optim": "galore_adamw", "optim_target_modules": "all"}, "optim='galore_adamw': .*insta"),
        ({"report_to": "wandb"}, "report_to='wandb' is not a service whose library is installed"),
        ({"report_to": ["tensor_board"]}, "report_to='tensor_board' is not a service"),
        ({"log_level": "loud"}, "log_level='loud'; known: detail, debug, info"),
        ({"train_sampling_strategy": "longest"}, "known: random, sequential, group_by"),
        ({"accelerator_config": {"even": True}}, "accelerator_config={'even': True}: .*'even'"),
        ({"deepspeed": "none.json"}, "deepspeed='none.json': .*deepspeed"),
        ({"accelerator_config": "none.json"}, "accelerator_config='none.json': .*No such file"),
        ({"ddp_backend": "gloo"}, "ddp_backend='gloo': .*process group"),
        ({"dataloader_persistent_workers": True}, "persistent_workers=True needs dataloader_num_w"),
        ({"lora": {"r": 10**9}}, "lora: r=1000000000 is more than the hidden size, 12"),
        ({"lora": {"r": "a"}}, "lora: .*"),
        ({"use_liger_kernel": True}, "use_liger_kernel=True is not supported"),
        ({"torch_compile_mode": "quick"}, "torch_compile_mode='quick': .*quick"),
        ({"torch_compile_backend": "gcc"}, "torch_compile_backend='gcc'"),
        ({"steps_per_epoch": 10**12}, "steps_per_epoch=1000000000000; expected .* 10,000,000"),
        (
            {"max_tokens_per_batch": 10**30},
            "a whole number from 1 to 100,000,000, or null",
        ),
        ({"smart": {"steps": 10**9}}, "smart: steps=1000000000; expected a whole number from 1"),
    ],
)
def test_values_that_another_library_would_refuse_late(recipe, refused, change, message):
    recipe |= change

    assert_matches(refused(), message)


@pytest.mark.parametrize("key", ["batch_size", "max_tokens_per_batch"])
@pytest.mark.parametrize("value", [0, 10**9, 10**30, True, 1.5])
def test_sizes_of_a_batch_of_a_task_have_a_range(recipe, refused, key, value):
    recipe["tasks"]["moods"] |= {"batch_size": None, key: value}

    assert_matches(refused(), f"task 'moods': {key}={value}; expected a whole number from 1")


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("scores", {"doc_stride": 30}, "task 'scores': a similarity task has no key 'doc_stride'"),
        ("scores", {"max_length": 7}, "task 'scores': max_length=7 must be at least 8 tokens"),
        ("scores", {"max_length": 33}, "task 'scores': max_length=33 must be from 8 to the 32 pos"),
        ("scores", {"pooling": "first"}, "task 'scores': .*first"),
        ("scores", {"head": "mlp"}, "task 'scores': head='mlp' does not fit"),
        ("scores", {"pooling_layer": 7}, "pooling_layer=7 must be in"),
        ("scores", {"train_file": "gone.jsonl"}, "gone.jsonl: there is no such file"),
    ],
)
def test_keys_of_a_task_are_checked_before_rows_are_read(recipe, refused, task, change, message):
    Path(recipe["tasks"]["moods"]["train_file"]).write_text("neither\trows\tnor\tcolumns\n")
    recipe["tasks"][task] |= change

    assert_matches(refused(), message)


# Checkpoints


@pytest.fixture
def checkpoint(tmp_path, recipe):
    """Write a whole checkpoint of two tasks, and let the recipe start from it."""
    sizes = recipe.pop("model_config")
    tasks = {
        "moods": {"problem_type": "classification", "labels": ["bad", "good"], "pooling": "mean"},
        "pairs": {"problem_type": "paraphrase"},
    }
    folder = tmp_path / "checkpoint"
    MinBertForMultiTask(MinBertConfig(**sizes, tasks=tasks)).save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "garden", "fine"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    recipe["model_name_or_path"] = str(folder)
    return folder


def change_weights(folder, change):
    path = folder / "model.safetensors"
    weights = load_file(path)
    change(weights)
    save_file(weights, path, metadata={"format": "pt"})


def drop_a_layer(weights):
    for name in [name for name in weights if ".layer.1." in name]:
        del weights[name]


def drop_the_encoder(weights):
    for name in [name for name in weights if name.startswith("bert.encoder")]:
        del weights[name]


def widen_the_embeddings(weights):
    weights["bert.embeddings.word_embeddings.weight"] = torch.zeros(17, 12)


def add_a_class(weights):
    weights["heads.moods.out.weight"] = torch.zeros(3, 12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop_a_layer, "checkpoint' has no weights for 16 tensors, such as bert.encoder.layer.1"),
        (drop_the_encoder, "checkpoint' has no weights for 32 tensors, such as bert.encoder"),
        (widen_the_embeddings, r"word_embeddings.weight of shape \(17, 12\), .* needs \(150, 12\)"),
        (add_a_class, r"heads.moods.out.weight of shape \(3, 12\).*give the task another name"),
    ],
)
def test_weights_of_a_different_model_are_refused(checkpoint, refused, change, message):
    change_weights(checkpoint, change)

    assert_matches(refused(), message)


@pytest.mark.usefixtures("checkpoint")
def test_a_checkpoint_on_the_command_line_replaces_the_sizes_of_the_recipe(recipe, refused):
    path = recipe.pop("model_name_or_path")
    recipe["model_config"] = {"hidden_size": 12, "max_position_embeddings": 16}

    # the positions are those of the checkpoint
    line = refused("--model_name_or_path", path, "--max_length", "33")

    assert_matches(line, "max_length=33 must be from 8 to the 32 positions of the model")


def test_truncated_weights(checkpoint, refused):
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])

    assert_matches(
        refused(), "model_name_or_path='.*checkpoint' cannot be loaded: .*; give the fol"
    )


def test_a_checkpoint_without_a_configuration(checkpoint, refused):
    (checkpoint / "config.json").unlink()

    assert_matches(refused(), "checkpoint' cannot be loaded: it has no config.json; give the fol")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_checkpoint_with_a_missing_file(checkpoint, refused, name):
    (checkpoint / name).unlink()

    assert_matches(
        refused(), "model_name_or_path='.*checkpoint' cannot be loaded: .*; give the fol"
    )


def test_a_checkpoint_without_a_tokenizer(checkpoint, refused):
    (checkpoint / "vocab.txt").unlink()

    assert_matches(refused(), "checkpoint' has no tokenizer; add its tokenizer.json or vocab.txt")


def test_a_configuration_that_is_not_json(checkpoint, refused):
    (checkpoint / "config.json").write_text("{")

    assert_matches(
        refused(), "model_name_or_path='.*checkpoint' cannot be loaded: .*; give the fol"
    )


def test_a_tokenizer_with_more_tokens_than_the_model(checkpoint, refused):
    with (checkpoint / "vocab.txt").open("a") as file:
        file.writelines(f"word{number}\n" for number in range(200))

    assert_matches(refused(), "gives the token 'word199' the id 206, but .* for 150 tokens")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (
            lambda: RobertaModel(
                RobertaConfig(
                    vocab_size=31,
                    hidden_size=12,
                    num_hidden_layers=1,
                    num_attention_heads=3,
                    intermediate_size=29,
                )
            ),
            "roberta",
        ),
        (
            lambda: GPT2LMHeadModel(
                GPT2Config(
                    vocab_size=31, n_embd=12, n_layer=1, n_head=3, bos_token_id=1, eos_token_id=2
                )
            ),
            "gpt2",
        ),
    ],
)
def test_checkpoints_of_another_architecture(tmp_path, recipe, refused, model, name):
    del recipe["model_config"]
    folder = tmp_path / name
    model().save_pretrained(folder)

    line = refused("--model_name_or_path", str(folder))

    assert_matches(line, f"is a '{name}' checkpoint; minBERT loads checkpoints of type 'minbert'")


# The output folder


def test_a_folder_with_unknown_files(recipe, refused):
    folder = Path(recipe["output_dir"])
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")

    assert_matches(
        refused(), "output_dir='.*' has files that are not of a run: choose another --output"
    )


def test_a_folder_that_is_a_file(recipe, refused):
    Path(recipe["output_dir"]).write_text("a file")

    assert_matches(refused(), "output_dir='.*': '.*' is a file; name another folder")


@pytest.mark.parametrize("name", ["/dev/null", "/dev/full/run", "a\0b", "x" * 300, "x/" * 3000])
def test_a_folder_that_cannot_be_made(recipe, refused, name):
    for task in recipe["tasks"].values():
        Path(task["train_file"]).write_text("neither rows nor columns\n")  # the folder comes first

    assert_matches(refused("--output_dir", name), "output_dir='.*': .*; name another folder")


def test_a_folder_without_a_name(refused):
    assert_matches(refused("--output_dir", ""), "output_dir is empty; name a folder")


def leave_run(recipe, tmp_path, *, finished):
    """Write the files of a run that was stopped at its beginning, or at its end."""
    argv = [small_run.write_recipe(tmp_path, recipe)]
    kinds = (FinetuneArguments, ProgramTrainingArguments)
    arguments, training_arguments = parse_recipe(kinds, argv)
    settings = describe_settings(training_arguments, vars(arguments))
    start_run(recipe["output_dir"], settings, resume=False)
    if finished:
        finish_run(recipe["output_dir"])


def test_a_folder_with_this_run_unfinished(tmp_path, recipe, refused):
    leave_run(recipe, tmp_path, finished=False)

    assert_matches(
        refused(), "has this run, unfinished: add --resume_from_checkpoint true to continue"
    )


@pytest.mark.parametrize("flags", [[], ["--resume_from_checkpoint", "true"]])
def test_a_folder_with_another_run(tmp_path, recipe, refused, flags):
    leave_run(recipe, tmp_path, finished=True)

    line = refused("--learning_rate", "0.02", *flags)

    assert_matches(line, "another learning_rate: choose another --output_dir, or add --overwrite")


# The network


def test_no_network_for_a_model(recipe, refused):
    del recipe["model_config"]

    line = refused("--model_name_or_path", "user/model")

    named = "model_name_or_path='user/model' is not a folder and cannot be loaded from the Hub"
    assert_matches(line, f"{named}: .*; give the folder or")


def test_no_network_for_a_dataset(refused):
    line = refused("--tasks", "{sst: {dataset: sst}}")

    assert_matches(line, "task 'sst': dataset 'SetFit/sst5' cannot be .*data_dir")


def test_no_network_to_push_to(refused):
    line = refused("--push_to_hub", "--hub_model_id", "user/model")

    assert_matches(line, "push_to_hub: .*; check the network, log in")


def run_alone(folder, recipe, *flags, launch=False, **environment):
    """Run finetune.py in a separate process, where no server answers."""
    program = ["finetune.py"]
    if launch:
        program = ["-m", "accelerate.commands.launch", "--num_processes", "1", *program]
    return subprocess.run(
        [sys.executable, *program, small_run.write_recipe(folder, recipe), *flags],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}
        | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--model_name_or_path", "user/model", "--model_config", "{}"],
            "'user/model' is not a folder and cannot be loaded",
        ),
        (["--tasks", "{sst: {dataset: sst}}"], "task 'sst': dataset 'SetFit/sst5' cannot be "),
        (["--push_to_hub", "--hub_token", "hf_none"], "push_to_hub: .*; check the network, log in"),
        (["--push_to_hub"], "push_to_hub: .*; check the network, log in"),
    ],
)
def test_a_hub_that_refuses_the_connection(tmp_path, recipe, flags, message):
    done = run_alone(tmp_path, recipe, *flags)

    assert done.returncode == 1
    assert_matches(only_error(done.stderr), message)
    assert not Path(recipe["output_dir"]).exists()


@pytest.mark.slow
def test_the_line_is_there_under_accelerate_launch(tmp_path, recipe):
    done = run_alone(tmp_path, recipe | {"max_length": 1}, launch=True)

    lines = [
        line for line in done.stderr.splitlines() if line.startswith("minbert finetune: error: ")
    ]
    assert done.returncode != 0
    assert len(lines) == 1
    assert "max_length=1 must be from 8 to" in lines[0]
    assert not Path(recipe["output_dir"]).exists()
