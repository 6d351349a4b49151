# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Several readings of one pass of the encoder: states of different layers and tokens.

Shapes: T tokens of all sequences, M tokens whose state is read, D hidden size.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from .modules_minbert import changes_output
from .packing_minbert import Read


class Reading(NamedTuple):
    """Which states to return, and after how many layers; see `MinBertModel.forward`."""

    read: Read = None
    num_layers: int | None = None


class Stop(NamedTuple):
    """Where states leave the stack of layers."""

    num_layers: int | None  # from the bottom; None for all
    select: Tensor | None  # tokens that are read, (M,); None for all


def run_layers(
    layers: Any,
    hidden: Tensor,
    stops: Sequence[Stop],
    run: Callable[[Any, Tensor, Tensor | None], Tensor],
) -> list[Tensor]:
    """Run the layers once, and return the states of each stop, (T, D) or (M, D).

    A layer from which only some tokens are read computes these alone. If other stops need more of
    it, it runs for these, too: so the states are the same, bit for bit, as those of a single stop.

    Args:
        layers: A sequence of all layers, from the bottom.
        hidden: Input of the first layer.
        stops: Where states are read.
        run: Maps a layer, its input, and the selected tokens to the states.
    """
    depths = [len(layers[: stop.num_layers]) for stop in stops]
    found: list[Any] = [None] * len(stops)
    for depth in range(max(depths) + 1):
        compute = partial(run, layers[depth - 1]) if depth else _select
        ending = [place for place, own in enumerate(depths) if own == depth]
        before = hidden
        if depth < max(depths) or any(stops[x].select is None for x in ending):
            hidden = compute(before, None)
        for place in ending:
            select = stops[place].select
            found[place] = hidden if select is None else compute(before, select)
    return found


def _select(hidden: Tensor, select: Tensor | None) -> Tensor:
    """Return the selected states, or all: what a layer does that computes nothing."""
    return hidden if select is None else hidden.index_select(0, select)


def strictest(readings: Sequence[Reading]) -> Read:
    """Return a reading that decides for all whether a batch stays padded."""
    reads = [reading.read for reading in readings]
    return next((read for read in reads if isinstance(read, str) and read == "padded"), reads[0])


def encode_readings(
    encoder: nn.Module, inputs: Sequence[Any], readings: Sequence[Reading], options: dict[str, Any]
) -> dict[Reading, Any]:
    """Run the encoder once, and return its output for each of several readings.

    A hook may change what the encoder returns, which is a single output. With such a hook, or if
    there is only one reading, the encoder runs once per reading.
    """
    inner: Any = encoder
    if len(readings) == 1 or changes_output(encoder) or changes_output(inner.encoder):
        return {
            each: encoder(*inputs, return_dict=True, **each._asdict(), **options)
            for each in readings
        }
    outputs = encoder(*inputs, return_dict=True, readings=readings, **options)
    return dict(zip(readings, outputs.readings, strict=True))
