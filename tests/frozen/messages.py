"""Bad input, and what is said about it: recipes, flags, files, rows, checkpoints."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from tests import small_run
from tests.frozen.learning import change
from tests.frozen.outcomes import Case, Workshop, make_pretraining
from tests.problem_examples import EXAMPLES

# Changes of a recipe of three tasks by dotted keys; a null removes the key.
RECIPES: list[dict[str, Any]] = [
    {"lerning_rate": 1},
    {"learning_rate": "abc"},
    {"learning_rate": -1.0},
    {"freeze_encoder": "x"},
    {"freeze_encoder": True},
    {"tasks": {}},
    {"tasks": ["sst"]},
    {"tasks": "moods"},
    {"tasks": {1: {"dataset": "sample_sst"}}},
    {"tasks": {"a b": {"dataset": "sample_sst"}}},
    {"tasks": {"sst": "sample_sst"}},
    {"tasks": {"sst": {}}},
    {"tasks": {"sst": {"dataset": "sample_ssd"}}},
    {"tasks": {"sst": {"dataset": "sample_sst", "problem_type": "similarity"}}},
    {"max_length": 0},
    {"max_length": 33},
    {"max_length": 7.5},
    {"num_train_epochs": -1},
    {"num_train_epochs": "many"},
    {"max_steps": "many"},
    {"per_device_train_batch_size": 0},
    {"per_device_train_batch_size": 1.5},
    {"per_device_eval_batch_size": 0},
    {"gradient_accumulation_steps": 0},
    {"max_tokens_per_batch": 0},
    {"max_tokens_per_batch": 5},
    {"steps_per_epoch": "banana"},
    {"steps_per_epoch": 0},
    {"steps_per_epoch": 10**12},
    {"warmup_steps": -1},
    {"weight_decay": "x"},
    {"lr_scheduler_type": "straight"},
    {"optim": "adam2"},
    {"optim": "galore_adamw", "optim_target_modules": "all"},
    {"optim_args": "nonsense"},
    {"label_smoothing_factor": 2.0},
    {"seed": "x"},
    {"seed": -1},
    {"metric_for_best_model": "nonsense"},
    {"metric_for_best_model": "moods_f1"},
    {"early_stopping_patience": 2, "eval_strategy": "no"},
    {"early_stopping_patience": 0},
    {"eval_strategy": "sometimes"},
    {"save_strategy": "sometimes"},
    {"logging_steps": -1},
    {"save_total_limit": "x"},
    {"report_examples": -1},
    {"report_to": "wandb"},
    {"report_to": ["tensor_board"]},
    {"log_level": "loud"},
    {"train_sampling_strategy": "longest"},
    {"length_column_name": "x", "train_sampling_strategy": "group_by_length"},
    {"card": {"colour": "red"}},
    {"card": "en"},
    {"layerwise_lr_decay": 2},
    {"layerwise_lr_decay": 0},
    {"head_learning_rate": -1},
    {"weight_averaging": "mean"},
    {"averaging_decay": 0.5},
    {"averaging_decay": 2, "weight_averaging": "ema"},
    {"r_drop": -1},
    {"r_drop": "x"},
    {"smart": {"weigth": 1}},
    {"smart": {"steps": 10**9}},
    {"smart": 1},
    {"neftune_noise_alpha": 5},
    {"gradient_surgery": "pc"},
    {"gradient_surgery": "pcgrad"},
    {"task_sampling": "random"},
    {"task_sampling": "weighted"},
    {"task_sampling": "weighted", "sampling_weights": {"moods": 1}},
    {"task_sampling": "temperature"},
    {"task_sampling": "temperature", "sampling_temperature": -1},
    {"sampling_temperature": 2},
    {"sampling_cap": 10},
    {"task_sampling": "mixed", "optim": "lomo"},
    {"lora": {"ranks": 8}},
    {"lora": {"r": 4, "target_modules": ["nothing"]}},
    {"lora": {"r": 10**9}},
    {"lora": {"r": "a"}},
    {"lora": {"r": 2}, "freeze_layers": 1},
    {"freeze_layers": 2},
    {"freeze_layers": 7},
    {"calibrate": "x"},
    {"teacher": "gone"},
    {"teacher": 3},
    {"distillation_alpha": 0.5},
    {"distillation_temperature": 2},
    {"tasks.moods.unlabeled_file": "MOODS"},
    {"model_config": {"hiden_size": 12}},
    {"model_config": {"hidden_size": 13}},
    {"model_config": {"hidden_size": "x"}},
    {"model_config": {"type_vocab_size": 1}},
    {"model_config": {"vocab_size": 7}},
    {"model_config": {"hidden_act": "gellu"}},
    {"model_config": {"num_hidden_layers": 0}},
    {"model_config": 12},
    {"model_name_or_path": "user/model"},
    {"model_name_or_path": "gone", "model_config": None},
    {"model_name_or_path": "user/model", "model_config": None},
    {"accelerator_config": {"even": True}},
    {"deepspeed": "none.json"},
    {"dataloader_persistent_workers": True},
    {"use_liger_kernel": True},
    {"torch_compile": True},
    {"bf16": True, "fp16": True},
    {"resume_from_checkpoint": "gone"},
    {"output_dir": ""},
    {"corpus": {"own": {"train_file": "x.txt"}}},
    # keys of a task
    {"tasks.moods.colour": 1},
    {"tasks.moods.poling": "mean"},
    {"tasks.moods.pooling": "first"},
    {"tasks.moods.threshold_fitted": True},
    {"tasks.moods.batch_size": 0},
    {"tasks.moods.batch_size": True},
    {"tasks.moods.batch_size": 10**30},
    {"tasks.moods.max_tokens_per_batch": 1.5, "tasks.moods.batch_size": None},
    {"tasks.moods.max_tokens_per_batch": 100},
    {"tasks.moods.loss_weight": -1},
    {"tasks.moods.loss_weight": "x"},
    {"tasks.moods.head": "cosine"},
    {"tasks.moods.loss": "mse"},
    {"tasks.moods.loss": "cross_entropie"},
    {"tasks.moods.class_weights": [1.0]},
    {"tasks.moods.class_weights": "fair"},
    {"tasks.moods.class_weights": {"good": 1, "evil": 2}},
    {"tasks.moods.pos_weight": "balanced"},
    {"tasks.moods.pair_encoding": "joint"},
    {"tasks.moods.dropout": 2},
    {"tasks.moods.pooling_layer": 7},
    {"tasks.moods.truncation": "middle"},
    {"tasks.moods.window_overlap": 3},
    {"tasks.moods.truncation": "windows", "tasks.moods.window_overlap": 40},
    {"tasks.moods.max_length": 7},
    {"tasks.moods.max_length": 33},
    {"tasks.moods.max_train_samples": 0},
    {"tasks.moods.max_train_samples": 5, "tasks.moods.max_train_samples_per_class": 3},
    {"tasks.moods.max_train_samples_per_class": "equal"},
    {"tasks.moods.max_invalid_fraction": 2},
    {"tasks.moods.validation_share": 2, "tasks.moods.validation_file": None},
    {"tasks.moods.validation_share": 0, "tasks.moods.validation_file": None},
    {"tasks.moods.validation_share": 0.2},
    {"tasks.moods.sample_seed": "x"},
    {"tasks.moods.metrics": ["f1"]},
    {"tasks.moods.metrics": []},
    {"tasks.moods.text_columns": ["sentence"]},
    {"tasks.moods.text_columns": []},
    {"tasks.moods.text_columns": ["a", "b", "c"]},
    {"tasks.moods.text_columns": None},
    {"tasks.moods.label_column": None},
    {"tasks.moods.label_column": "tone"},
    {"tasks.moods.label_columns": ["a", "b"]},
    {"tasks.moods.id_column": "number"},
    {"tasks.moods.labels": ["good", "awful"]},
    {"tasks.moods.labels": ["good"]},
    {"tasks.moods.labels": ["good", "good"]},
    {"tasks.moods.labels": "good"},
    {"tasks.moods.delimiter": "dots"},
    {"tasks.moods.quoting": "x"},
    {"tasks.moods.train_file": None},
    {"tasks.moods.train_file": "rows.doc"},
    {"tasks.moods.train_file": 3},
    {"tasks.moods.revision": "main"},
    {"tasks.moods.auxiliary": "x"},
    {"tasks.moods.auxiliary": True, "tasks.pairs.auxiliary": True, "tasks.scores.auxiliary": True},
    {"tasks.moods.calibrate": 3},
    {"tasks.moods.threshold_for": {"precision": 0.9}},
    {"tasks.pairs.threshold_for": {"precision": 2}},
    {"tasks.pairs.threshold_for": {"accuracy": 0.9}},
    {"tasks.moods.regularize": "x"},
    {"tasks.moods.teacher": "gone"},
    {"tasks.moods.extra_files": 3},
    {"tasks.moods.extra_files": {"hard": "x.tsv"}},
    {"tasks.moods.problem_type": "clasification"},
    {"tasks.moods.problem_type": None},
    {"tasks.moods.problem_type": "masked_lm"},
    {"tasks.pairs.train_file": "gone.tsv"},
    {"tasks.pairs.problem_type": "regresion"},
    {"tasks.pairs.dataset": "quora"},
    {"tasks.pairs.labels": ["no", "yes", "maybe"]},
    {"tasks.pairs.pair_encoding": "both"},
    {"tasks.pairs.loss": "cosent"},
    {"tasks.scores.score_range": [3, 5]},
    {"tasks.scores.score_range": [5, 3]},
    {"tasks.scores.score_range": None},
    {"tasks.scores.score_range": 5},
    {"tasks.scores.doc_stride": 30},
    {"tasks.scores.head": "mlp"},
    {"tasks.scores.projection": "sometimes"},
    {"tasks.scores.train_file": "gone.jsonl"},
    {"tasks.scores.class_weights": "balanced"},
]

FLAGS: dict[str, list[list[str]]] = {
    "finetune": [
        ["gone.yaml"],
        ["gone"],
        ["quickstrat"],
        ["glue/colla"],
        ["RECIPE", "--tasks", "moods,quora"],
        ["RECIPE", "--tasks", ""],
        ["RECIPE", "--lerning_rate", "1"],
        ["RECIPE", "--learning_rate", "abc"],
        ["RECIPE", "--learning_rate"],
        ["RECIPE", "--seed", "1.5"],
        ["RECIPE", "--use_cpu", "perhaps"],
        ["RECIPE", "--weight_averaging", "mean"],
        ["RECIPE", "--gradient_surgery", "pc"],
        ["RECIPE", "--tasks.moods.colour", "red"],
        ["RECIPE", "--tasks.mods.pooling", "mean"],
        ["RECIPE", "--tasks.moods.pooling", "first"],
        ["RECIPE", "--model_config.hidden_size", "x"],
        ["RECIPE", "--smart.weight", "x"],
        ["RECIPE", "--resume_from_checkpoint", "gone"],
        ["RECIPE", "--resume_from_checkpoint", "FOLDER"],
        ["RECIPE", "--output_dir", ""],
        ["RECIPE", "--output_dir", "/dev/null"],
        ["RECIPE", "--output_dir", "FOLDER"],
        ["RECIPE", "another.yaml"],
        ["RECIPE", "--push_to_hub", "--hub_model_id", "user/model"],
        ["RECIPE", "--tasks", "{sst: {dataset: sst}}"],
        ["RECIPE", "--tasks", "{sst: {dataset: owner/none}}"],
        ["RECIPE", "--tasks", "{cola: {dataset: cola}}", "--data_dir", "FOLDER"],
        ["pretrain_quickstart"],
        ["report/table"],
    ],
    "pretrain": [
        ["gone.yaml"],
        ["quickstart"],
        ["PRETRAIN", "--corpus", "theirs"],
        ["PRETRAIN", "--objective", "mlm_sop"],
        ["PRETRAIN", "--mlm_probability", "2"],
        ["PRETRAIN", "--mask_replace_prob", "0.9", "--random_replace_prob", "0.2"],
        ["PRETRAIN", "--packing", "full_sentences"],
        ["PRETRAIN", "--vocab_size", "7"],
        ["PRETRAIN", "--model_size", "huge"],
        ["PRETRAIN", "--max_length", "4"],
        ["PRETRAIN", "--train_tokenizer", "false"],
        ["PRETRAIN", "--dropout", "2"],
        ["PRETRAIN", "--max_eval_samples", "0"],
        ["PRETRAIN", "--corpus.own.colour", "red"],
        ["PRETRAIN", "--corpus.own.train_file", "gone.txt"],
        ["PRETRAIN", "--corpus.own.documents", "words"],
        ["PRETRAIN", "--corpus.own.dataset", "sample_text"],
        ["PRETRAIN", "--corpus", "{own: {}}"],
        ["PRETRAIN", "--corpus", "{own: {train_file: RECIPE}}"],
        ["PRETRAIN", "--tokenizer_name_or_path", "gone"],
        ["PRETRAIN", "--model_name_or_path", "gone"],
        ["PRETRAIN", "--whole_word_mask", "x"],
    ],
    "check": [["gone.yaml"], ["RECIPE", "--max_length", "99"], ["RECIPE", "--colour", "red"], []],
    "predict": [
        [],
        ["gone", "a text"],
        ["RUN", "a text"],
        ["RUN", "--task", "mood", "a text"],
        ["RUN", "--task", "moods"],
        ["RUN", "--task", "pairs", "a text"],
        ["RUN", "--task", "moods,pairs", "a text", "b"],
        ["RUN", "--task", "moods", "--file", "gone.csv"],
        ["RUN", "--task", "moods", "--file", "MOODS", "--text_columns", "sentence"],
        ["RUN", "--task", "moods", "--file", "MOODS", "a text"],
        ["RUN", "--task", "moods", "--text_columns", "text", "a text"],
        ["RUN", "--task", "moods", "--device", "nonsense", "a text"],
        ["RUN", "--task", "moods", "--precision", "float8", "a text"],
        ["RUN", "--task", "moods", "--format", "xml", "a text"],
        ["RUN", "--task", "moods", "--output", "FOLDER/none/x.csv", "a text"],
        ["RUN", "--task", "moods", "--colour", "red", "a text"],
        ["RUN", "--embed", "vectors.txt", "a text"],
        ["RUN", "--embed", "FOLDER/none/vectors.npy", "a text"],
        ["RUN", "--corpus", "gone.txt", "--query", "a text"],
        ["FOLDER", "a text"],
    ],
    "export": [
        [],
        ["RUN"],
        ["RUN", "--format", "pdf", "--output_dir", "FOLDER/new"],
        ["gone", "--format", "bert", "--output_dir", "FOLDER/new"],
        ["RUN", "--format", "bert", "--output_dir", "RUN"],
        ["RUN", "--format", "bert", "--task", "mood", "--output_dir", "FOLDER/new"],
        ["RUN", "--format", "bert", "--precision", "int8", "--output_dir", "FOLDER/new"],
        ["RUN", "--format", "space", "--output_dir", "/dev/null/x"],
    ],
    "new": [
        [],
        ["gone.csv"],
        ["RECIPE"],
        ["MOODS", "--text_columns", "sentence"],
        ["MOODS", "--label_column", "tone"],
        ["MOODS", "--problem_type", "guess"],
        ["MOODS", "--problem_type", "question_answering"],
        ["MOODS", "--output", "RECIPE"],
        ["MOODS", "--output", "FOLDER/none/x.yaml"],
        ["MOODS", "MOODS"],
    ],
    "embeddings": [
        [],
        ["RUN"],
        ["RUN", "--sts", "stsc"],
        ["gone", "--sts", "stsb", "--sts_dir", "FOLDER"],
        ["RUN", "--sts", "stsb", "--sts_dir", "gone"],
        ["RUN", "--colour", "red"],
    ],
    "recipes": [["quickstrat"], ["--colour"]],
}

# Contents of a file of training rows, by the problem type; the first columns are those of examples.
TABLES: dict[str, list[str]] = {
    "classification": [
        "",
        "id\ta\tb\tsame\tmood\n",
        "id^a^mood\n1^x^good\n",
        "id\ta\tmood\n1\tx\n2\ty\tgood\n",
        "id\ta\tmood\n1\tx\tgood\n2\ty\tgood\n",
        "id\ta\tmood\n1\t\tgood\n2\ty\tbad\n",
        "id\ta\tmood\n1\tx\t\n2\ty\tbad\n",
        'id\ta\tmood\n1\t"x\tgood\n2\ty\tbad\n3\tz"\tbad\n',
        "id\ta\ta\tmood\n1\tx\ty\tgood\n",
    ],
    "paraphrase": [
        "id\ta\tb\tsame\n1\tx\ty\t2\n",
        "id\ta\tb\tsame\n1\tx\ty\tmaybe\n2\tx\ty\t1\n",
        "id\ta\tb\n1\tx\ty\n",
        "id\ta\tb\tsame\n1\tx\t\t1\n2\tx\ty\t0\n",
    ],
    "similarity": [
        "id\ta\tb\tsame\n1\tx\ty\t2\n",
        "id\ta\tb\tsame\n1\tx\ty\thigh\n",
        "id\ta\tb\tsame\n1\tx\ty\tnan\n",
    ],
    "contrastive": ["id\ta\n1\tx\n", "id\ta\tb\n1\tx\t\n2\tx\ty\n"],
    "multi_label_classification": [
        '{"id": 1, "a": "x", "topics": 3}\n',
        '{"id": 1, "a": "x", "topics": []}\n',
        '{"id": 1, "a": 7, "topics": ["good"]}\n',
        '{"id": 1, "a": "x"}\n',
        '{"id": 1, "a": "x", "topics": ["good", "good"]}\n',
        "{\n",
    ],
    "ordinal": [
        '{"id": 1, "a": "x", "grade": "high"}\n{"id": 2, "a": "y", "grade": "low"}\n',
        '{"id": 1, "a": "x", "grade": 1}\n',
        '{"id": 1, "a": "x", "grade": [1]}\n',
    ],
    "regression": [
        '{"id": 1, "a": "x", "price": "high", "age": 3}\n',
        '{"id": 1, "a": "x", "price": 1}\n',
        '{"id": 1, "a": "x", "price": 1, "age": NaN}\n',
        '{"id": 1, "a": "x", "price": null, "age": null}\n',
    ],
    "multiple_choice": [
        '{"id": 1, "text": "x", "ends": ["a"], "right": "A"}\n',
        '{"id": 1, "text": "x", "ends": ["a", "b"], "right": "C"}\n',
        '{"id": 1, "text": "x", "ends": ["a", ""], "right": "A"}\n',
        '{"id": 1, "text": "x", "ends": "a", "right": "A"}\n',
        '{"id": 1, "text": "x", "ends": ["a", "b"]}\n',
    ],
    "token_classification": [
        '{"tokens": ["a", "b"], "tags": ["O"]}\n',
        '{"tokens": [], "tags": []}\n',
        '{"tokens": ["a"], "tags": ["X-THING"]}\n',
        '{"tokens": ["a"], "tags": ["I-"]}\n',
        '{"tokens": ["a", ""], "tags": ["O", "O"]}\n',
        '{"tokens": "a b", "tags": "O O"}\n',
        '{"words": ["a"], "tags": ["O"]}\n',
    ],
    "question_answering": [
        '{"id": "1", "question": "q", "context": "c"}\n',
        '{"id": "1", "question": "", "context": "c",'
        ' "answers": {"text": [], "answer_start": []}}\n',
        '{"id": "1", "question": "q", "context": "c d",'
        ' "answers": {"text": ["d"], "answer_start": []}}\n',
        '{"id": "1", "context": "c d", "answers": {"text": ["d"], "answer_start": [2]}}\n',
        "[]",
    ],
}


def tell_recipes(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    """Yield what is said about recipes of three tasks with a bad value."""
    for changes in RECIPES:
        folder = workshop.new("bad-recipe")
        paths = {"MOODS": str(folder / "moods-train.tsv")}
        recipe = change(folder, {key: find(paths, value) for key, value in changes.items()})
        yield name_changes(changes), refuse(workshop, folder, recipe)
    for text in (
        "",
        "tasks: [",
        "- a\n",
        "tasks:\n  a: 1\n  a: 2\n",
        "\0",
        "tasks: {}\nseed: &x 1",
    ):
        path = workshop.new("bad-recipe") / "bad.yaml"
        path.write_text(text, encoding="utf-8")
        yield f"text {text!r}", tell(workshop.run("finetune", path))


def find(paths: dict[str, str], value: Any) -> Any:
    """Return the path for which a word stands, else the value."""
    return paths.get(value, value) if isinstance(value, str) else value


def name_changes(changes: dict[Any, Any]) -> str:
    """Name a case by its changes."""
    return ", ".join(f"{key}={value!r}" for key, value in changes.items())


def write(folder: Path, recipe: dict[str, Any]) -> str:
    """Write a recipe into its folder."""
    return small_run.write_recipe(folder, recipe)


def refuse(workshop: Workshop, folder: Path, recipe: dict[str, Any]) -> str:
    """Return what is said about a recipe; one that is refused leaves nothing in its folder."""
    ran = workshop.run("finetune", write(folder, recipe))
    assert ran.status == 0 or not (folder / "out").exists(), "a refused run left files"
    return tell(ran)


def tell(ran: Any) -> str:
    """Put exit status and standard error in one line."""
    shown = ran.err.strip().splitlines()
    lines = [line for line in shown if not line.startswith("precision:")]
    return f"{ran.status} {' / '.join(lines) or '(no message)'}"


def tell_flags(program: str) -> Case:
    """Make a case of what a program says about bad flags."""

    def case(workshop: Workshop) -> Iterator[tuple[str, Any]]:
        folder = workshop.new("bad-flags")
        words = {
            "RECIPE": write(folder, change(folder, {})),
            "MOODS": str(folder / "moods-train.tsv"),
            "RUN": str(workshop.three_tasks / "out"),
        }
        if program == "pretrain":
            words["PRETRAIN"] = write(folder, make_pretraining(folder))
        for argv in FLAGS[program]:
            flags = [words.get(word, word.replace("FOLDER", str(folder))) for word in argv]
            flags = [flag.replace("RECIPE", words["RECIPE"]) for flag in flags]
            yield " ".join(argv) or "(nothing)", tell(workshop.run(program, *flags))

    return case


def tell_rows(kind: str) -> Case:
    """Make a case of what is said about training rows of a problem type."""

    def case(workshop: Workshop) -> Iterator[tuple[str, Any]]:
        for text in TABLES[kind]:
            folder = workshop.new("bad-rows")
            task = {"problem_type": kind, "batch_size": 4, **EXAMPLES[kind].write(folder)}
            Path(task["train_file"]).write_text(text, encoding="utf-8")
            yield repr(text), refuse(workshop, folder, change(folder, {"tasks": {"own": task}}))

    return case


def drop_a_layer(folder: Path) -> None:
    """Remove the weights of a layer."""
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if ".layer.1." not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})


def add_a_class(folder: Path) -> None:
    """Change the shape of a head."""
    weights = load_file(folder / "model.safetensors")
    name = "heads.moods.out.weight"
    weights[name] = weights[name].new_zeros(3, 12)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def cut_weights(folder: Path) -> None:
    """Remove the end of the weights."""
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def replace_config(text: str) -> Callable[[Path], None]:
    """Return a function that replaces the configuration."""
    return lambda folder: (folder / "config.json").write_text(text, encoding="utf-8") and None


def remove(*names: str) -> Callable[[Path], None]:
    """Return a function that removes files."""
    return lambda folder: [(folder / name).unlink() for name in names] and None


DAMAGES: dict[str, Callable[[Path], None]] = {
    "no layer": drop_a_layer,
    "another class": add_a_class,
    "weights cut": cut_weights,
    "config is no JSON": replace_config("{"),
    "another architecture": replace_config('{"model_type": "gpt2"}'),
    "no config": remove("config.json"),
    "no weights": remove("model.safetensors"),
    "no tokenizer": remove("tokenizer.json", "tokenizer_config.json"),
}


def tell_checkpoints(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    """Yield what is said about a checkpoint that is damaged."""
    for name, damage in DAMAGES.items():
        folder = workshop.new("bad-checkpoint")
        checkpoint = folder / "checkpoint"
        checkpoint.mkdir()
        for path in (workshop.three_tasks / "out").glob("*"):
            if path.suffix in (".json", ".safetensors") and path.is_file():
                (checkpoint / path.name).write_bytes(path.read_bytes())
        damage(checkpoint)
        changes = {"model_name_or_path": str(checkpoint), "model_config": None}
        path = write(folder, change(folder, changes))
        yield f"finetune {name}", tell(workshop.run("finetune", path))
        flags = ("--task", "moods", "--precision", "float32", "a text")
        yield f"predict {name}", tell(workshop.run("predict", checkpoint, *flags))


def tell_folders(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    """Yield what is said about a folder that has other files, or another run."""
    folder = workshop.new("bad-folder")
    path = write(folder, change(folder, {}))
    (folder / "out").mkdir()
    (folder / "out" / "thesis.txt").write_text("years of work", encoding="utf-8")
    yield "unknown files", tell(workshop.run("finetune", path))
    argv = ("finetune", workshop.three_tasks / "recipe.yaml")
    yield "another run", tell(workshop.run(*argv, "--learning_rate", "0.02"))
    flags = ("--learning_rate", "0.02", "--resume_from_checkpoint", "true")
    yield "another run resumed", tell(workshop.run(*argv, *flags))


MESSAGES: dict[str, Case] = {
    "recipes": tell_recipes,
    **{f"flags of {program}": tell_flags(program) for program in FLAGS},
    **{f"rows of {kind}": tell_rows(kind) for kind in TABLES},
    "checkpoints": tell_checkpoints,
    "folders": tell_folders,
}
