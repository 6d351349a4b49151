"""Quality of a loaded contender, on rows that the benchmark wrote.

Runs in both environments.
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .contenders import Apply

# how far vectors in float32 may be from the reference's, and how many classes may differ
LIMITS = {"encode": 1e-3, "predict": 2e-3}


def measure_quality(workload: str, apply: Apply, folder: Path, name: str) -> dict[str, float]:
    """Measure Spearman's correlation on STS, or the accuracy on SST, and save the outputs.

    Args:
        workload: ``encode`` or ``predict``.
        apply: The loaded contender.
        folder: Folder with ``sts.json`` and ``sst_dev.json``.
        name: Name of the contender.

    Returns:
        ``quality``, in percent; nothing without rows.
    """
    file = folder / ("sts.json" if workload == "encode" else "sst_dev.json")
    if not file.exists():
        return {}
    rows = json.loads(file.read_text(encoding="utf-8"))
    if workload == "encode":
        first, second = (to_array(apply(rows[side])) for side in ("first", "second"))
        outputs, quality = np.stack([first, second]), spearman(first, second, rows["scores"])
    else:
        outputs = np.array(apply(rows["sentences"]))
        quality = float((outputs == np.array(rows["labels"])).mean())
    np.save(output_file(folder, workload, name), outputs)
    return {"quality": 100 * quality}


def spearman(first: NDArray[np.float32], second: NDArray[np.float32], scores: list[float]) -> float:
    """Correlate the cosines of pairs with their scores."""
    from scipy.stats import spearmanr

    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return float(spearmanr((first * second).sum(axis=1) / norms, scores)[0])


def to_array(vectors: object) -> NDArray[np.float32]:
    """Convert a tensor or an array to float32."""
    tensor: object = getattr(vectors, "float", lambda: vectors)()
    return np.asarray(tensor, dtype=np.float32)


def output_file(folder: Path, workload: str, name: str) -> Path:
    """Return where the outputs of a contender are."""
    return folder / f"outputs-{workload}-{name.replace(' ', '-')}.npy"


def compare_outputs(folder: Path, workload: str, name: str, reference: str) -> dict[str, float]:
    """Compare outputs with those of the reference.

    Returns:
        ``vectors``: the relative error, or ``classes``: the share that differs; nothing if one
        of both is missing.
    """
    files = [output_file(folder, workload, peer) for peer in (name, reference)]
    if not all(file.exists() for file in files):
        return {}
    own, other = (np.load(file).astype(np.float64) for file in files)
    if workload == "predict":
        return {"classes": float((own != other).mean())}
    # some peers return vectors of length 1
    own, other = (array / np.linalg.norm(array, axis=-1, keepdims=True) for array in (own, other))
    return {"vectors": float(np.linalg.norm(own - other) / np.linalg.norm(other))}
