"""minBERT from Python: train by a recipe, load the result, predict and embed.

    import minbert

    minbert.finetune("reviews.yaml", num_train_epochs=3, output_dir="runs/reviews")
    model = minbert.load("runs/reviews")
    model.predict("tone", ["What a lovely film."])

The classes and functions of `SOURCES` are here, too. All of it is imported when it is first used.
"""

import json
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minbert_onnx import MinBertOnnx
    from modeling_minbert import (
        MinBertConfig as MinBertConfig,
        MinBertForMaskedLM as MinBertForMaskedLM,
        MinBertForMultiTask as MinBertForMultiTask,
        MinBertModel as MinBertModel,
    )
    from trainers import (
        FastTrainingArguments as FastTrainingArguments,
        MultiTaskTrainer as MultiTaskTrainer,
        Task as Task,
        TrainingDivergedError as TrainingDivergedError,
    )

# What comes from other packages, and from which.
SOURCES = {
    "MinBertConfig": "modeling_minbert",
    "MinBertForMaskedLM": "modeling_minbert",
    "MinBertForMultiTask": "modeling_minbert",
    "MinBertModel": "modeling_minbert",
    "FastTrainingArguments": "trainers",
    "MultiTaskTrainer": "trainers",
    "Task": "trainers",
    "TrainingDivergedError": "trainers",
    "__version__": "modeling_minbert",
}
Recipe = Mapping[str, Any] | str | os.PathLike[str]


def __getattr__(name: str) -> Any:
    if name not in SOURCES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(SOURCES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *SOURCES})


def finetune(recipe: Recipe, **changes: Any) -> "MultiTaskTrainer":
    """Fine-tune as the command `minbert finetune`: the same checks, files and weights.

    Args:
        recipe: The keys of a recipe and their values, such as ``{"tasks": {...}, "output_dir":
            "runs/mine"}``, or the path or the name of a recipe.
        changes: Keys of the recipe that are replaced; a key within others has a dotted name, as in
            ``**{"tasks.tone.head": "mlp"}``. None stands for the default.

    Returns:
        The trainer after training: ``trainer.model.predict("tone", texts)`` uses the final weights.

    Raises:
        ValueError: If a key or a value is wrong, or as for the data; the message names it. Nothing
            is written then. Also if another run of the process has not ended.
        OSError: If a file cannot be read or written.
        TrainingDivergedError: If a loss, a gradient or a weight is NaN or infinite.
    """
    from minbert_cli.finetune import finetune as run_recipe

    trainer = run_recipe(_change(recipe, changes)).trainer
    model: Any = trainer.model
    model.tokenizer = trainer.processing_class  # for `predict`, also of a new model
    return trainer


def pretrain(recipe: Recipe, **changes: Any) -> "MultiTaskTrainer":
    """Pre-train as the command `minbert pretrain`; arguments and errors are those of `finetune`.

    Returns:
        The trainer after the pre-training.
    """
    from minbert_cli.pretrain import pretrain as run_recipe

    return run_recipe(_change(recipe, changes)).trainer


def check(recipe: Recipe, **changes: Any) -> None:
    """Read rows and model, and print what a run would do, without training or writing anything.

    Arguments and errors are those of `finetune`; with the key ``corpus`` it is a pre-training.
    """
    from minbert_cli.recipe import read_recipe
    from minbert_cli.recipes import choose_program, find_recipe

    keys, where = recipe, "recipe"
    if not isinstance(keys, Mapping):
        path = find_recipe(os.fspath(keys))
        keys, where = read_recipe(path), str(path)
    program = choose_program({**keys, **changes}, where)
    module = import_module(f"minbert_cli.{program}")
    getattr(module, program)(_change(recipe, changes), is_dry=True)


def load(
    path: str | os.PathLike[str], device: str | None = None
) -> "MinBertForMultiTask | MinBertModel | MinBertOnnx":
    """Load a model with its tokenizer, ready to predict and to embed.

    Args:
        path: The folder of a run, a checkpoint of any encoder that minBERT knows, in a folder or on
            the Hub, or a folder that ``minbert export --format onnx`` has written.
        device: Where to load it; by default a CUDA device if there is one. ONNX runs on the CPU.

    Returns:
        A `MinBertForMultiTask`, with ``predict``, ``predict_all`` and ``encode``; a `MinBertModel`,
        with ``encode``, if the checkpoint has no tasks; of an ONNX export a `MinBertOnnx`, with the
        same methods, which needs onnxruntime, tokenizers and numpy alone.

    Raises:
        ValueError: If it is no checkpoint, has no tokenizer, or a file of it is damaged.
        ImportError: If it is a checkpoint, and torch is not installed.
    """
    if (Path(path) / "minbert.json").is_file():
        if device not in (None, "cpu"):
            raise ValueError(f"device={device!r}: an ONNX export runs on the CPU; leave it out")
        from minbert_onnx import MinBertOnnx

        return MinBertOnnx(path)
    try:
        from minbert_cli.checkpoints import load_encoder
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{os.fspath(path)!r} is no ONNX export, and a checkpoint needs torch, transformers, "
            f"... ({error.name} is not installed): pip install minbert; or export it elsewhere: "
            f"minbert export {os.fspath(path)} --format onnx --output_dir <folder>"
        ) from error
    return load_encoder(os.fspath(path), device, "path")


def _change(recipe: Recipe, changes: Mapping[str, Any]) -> list[str] | dict[str, Any]:
    """Return a recipe with changes, as a mapping or, if it is in a file, as a command line."""
    from minbert_cli.arguments import ProgramTrainingArguments
    from minbert_cli.recipe import as_recipe, drop_replaced, override
    from minbert_cli.recipes import find_recipe
    from minbert_cli.text_tasks import PretrainArguments

    if isinstance(recipe, Mapping):
        arguments = PretrainArguments, ProgramTrainingArguments
        kept = drop_replaced(dict(recipe), dict(changes), *arguments)
        return override("changes", kept, changes)
    words = [str(find_recipe(os.fspath(recipe)))]
    for key, value in as_recipe(changes).items():
        # as YAML, in which a text may need quotes
        is_plain = isinstance(value, str) and "." not in key
        words += [f"--{key}", value if is_plain else json.dumps(value, ensure_ascii=False)]
    return words
