"""Load a checkpoint strictly: what it lacks and what does not fit is an error that names it."""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedModel

from trainers.errors import CHECKPOINT_ERRORS, named_errors


def load_pretrained(
    loader: type[Any],
    path: str,
    *,
    flag: str = "model_name_or_path",
    replaceable: Sequence[str] = (),
    **kwargs: Any,
) -> Any:
    """Load a model, its configuration or its tokenizer; what goes wrong is one sentence.

    ``from_pretrained`` of a model only warns of weights that are missing; here it is an error.

    Args:
        loader: Class with ``from_pretrained``.
        path: Folder or Hub id.
        flag: The flag that named it, for messages.
        replaceable: Beginnings of the names of weights that may be missing, and are new then.
        **kwargs: Arguments of ``from_pretrained``.

    Raises:
        ValueError: If the checkpoint cannot be read, or its weights are not those of the model.
    """
    where = f"{flag}={path!r}"
    advice = (
        "give the folder or the Hub id of a 'bert' or 'minbert' checkpoint; an id needs the "
        "network the first time"
    )
    with named_errors(f"{where} cannot be loaded", advice, CHECKPOINT_ERRORS):
        if not issubclass(loader, PreTrainedModel):
            return loader.from_pretrained(path, **kwargs)
        loaded: Any = loader.from_pretrained(
            path, output_loading_info=True, ignore_mismatched_sizes=True, **kwargs
        )
    model, info = loaded
    if mismatched := sorted(info["mismatched_keys"]):
        name, found, needed = mismatched[0]
        raise ValueError(
            f"{where} has {name} of shape {tuple(found)}, but the model needs {tuple(needed)}; "
            + ("give the task another name" if name.startswith("heads.") else "see its config.json")
        )
    lost = [key for key in info["missing_keys"] if not key.startswith(tuple(replaceable))]
    if lost:
        raise ValueError(f"{where} has no weights for {len(lost)} tensors, such as {min(lost)}")
    return model
