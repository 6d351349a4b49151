"""Vectors of a teacher in the width of the student's."""

import numpy as np
from numpy.typing import NDArray

# Vectors that are multiplied at a time.
CHUNK = 100_000


def reduce_width(vectors: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Map vectors, (N, S, D), to another width so that their scalar products stay.

    Wider vectors are projected on their main directions, the eigenvectors of the matrix of second
    moments: no other linear map keeps the scalar products better (Eckart and Young 1936).
    Narrower ones get zeros. Vectors with NaN stay NaN.

    Args:
        vectors: The vectors.
        width: The wanted D.
    """
    own = vectors.shape[-1]
    if own == width:
        return vectors
    if own < width:
        beside = [(0, 0)] * (vectors.ndim - 1)
        return np.pad(vectors, [*beside, (0, width - own)])
    flat = vectors.reshape(-1, own)
    moments = np.zeros((own, own))
    for start in range(0, len(flat), CHUNK):
        part = np.nan_to_num(flat[start : start + CHUNK].astype(np.float64))
        moments += part.T @ part
    _, directions = np.linalg.eigh(moments)  # the main ones come last
    projection = directions[:, : -width - 1 : -1].astype(np.float32)
    projected: NDArray[np.float32] = flat @ projection
    return projected.reshape(*vectors.shape[:-1], width)
