"""What a run is made from: its settings, command, recipe, data and code."""

import hashlib
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainingArguments

from trainers.hub_token import hide_token

from .recipe_files import format_recipe, read_recipe

# Packages whose sources identify the code of a run.
PACKAGES = ("datasets_scripts", "minbert_cli", "modeling_minbert", "trainers")
# Files of a checkpoint, except those that contain its path.
WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "config.json", "tokenizer.json", "vocab.txt")


def describe_settings(args: TrainingArguments, own: Mapping[str, Any]) -> dict[str, Any]:
    """Collect the arguments of the Trainer and all others as JSON values."""
    undecided = dict.fromkeys(getattr(args, "undecided", ()))  # null until the run decides
    content = {**args.to_dict(), **undecided, **own, "processes": args.world_size}
    # mappings are compared regardless of order, but the order of tasks and texts matters
    tasks = own.get("tasks") or {}
    content["task_order"] = list(tasks)
    corpora = {name: keys.get("corpus") for name, keys in tasks.items() if isinstance(keys, dict)}
    corpora[""] = own.get("corpus")
    content["corpus_order"] = {name: list(corpus) for name, corpus in corpora.items() if corpus}
    return json.loads(json.dumps(content, default=str))


def describe_command(module: str, argv: Sequence[str], token: str | None = None) -> str:
    """Format the command that repeats a run of a program, without the Hub token."""
    return hide_token(shlex.join(["accelerate", "launch", "-m", module, *argv]), token)


def describe_recipe(
    given: str | os.PathLike[str] | Mapping[str, Any], token: str | None = None
) -> str:
    """Show a recipe for publication, without the Hub token, however YAML spells it."""
    path = None if isinstance(given, Mapping) else Path(given)
    recipe = dict(given) if isinstance(given, Mapping) else read_recipe(Path(given))
    if recipe.pop("hub_token", None) is None:
        text = format_recipe(recipe) if path is None else path.read_text(encoding="utf-8")
    else:
        text = "# without comments and hub_token\n" + format_recipe(recipe)
    return hide_token(text, token)


def digest_code() -> str:
    """Hash the sources of the project."""
    root = Path(__file__).resolve().parents[2]
    paths = [path for name in PACKAGES for path in (root / name).rglob("*.py")]
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def fingerprint_start(model_name_or_path: str | None) -> dict[str, str]:
    """Hash the initial checkpoint; empty if it is not a local folder."""
    folder = Path(model_name_or_path or "")
    if not model_name_or_path or not folder.is_dir():
        return {}
    digest = hashlib.sha256()
    for path in sorted(path for name in WEIGHTS for path in folder.glob(name)):
        with path.open("rb") as file:
            digest.update(f"{path.name}\0".encode())
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return {"model_name_or_path": digest.hexdigest()[:16]}
