# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Rows of several calls in one pass of the encoder, as a server computes them."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from torch import Tensor

from .inference import make_batch, run_batch
from .packing import MinBertModelOutput, MinBertSequences, Read
from .rows import Job, split_batches


def compute_jobs(model: Any, jobs: Sequence[Job], max_tokens: int) -> None:
    """Compute the rows of jobs in as few passes as `max_tokens` in a batch allow."""
    rows = [(number, row) for number, job in enumerate(jobs) for row in range(len(job.encoded))]
    encoded = [row for job in jobs for row in job.encoded]
    packed = model.supports_packed_input()
    for batch in split_batches(encoded, max_tokens, packed=packed):
        owners = groupby(sorted(batch, key=lambda at: rows[at][0]), key=lambda at: rows[at][0])
        parts = [(jobs[number], [rows[at][1] for at in places]) for number, places in owners]
        if packed and len(parts) > 1:
            _compute_together(model, parts)
            continue
        for job, indices in parts:
            inputs = make_batch(model, [job.encoded[row] for row in indices])
            run_batch(job.members, indices, inputs)


def _compute_together(model: Any, parts: Sequence[tuple[Job, list[int]]]) -> None:
    """Encode the rows of several jobs in one pack, and run the heads of each on its own rows."""
    wanted: dict[int | None, Read] = {}
    for read, layers in (member.states for job, _ in parts for member in job.members):
        wanted[layers] = "tokens" if "tokens" in (read, wanted.get(layers)) else read
    whole = make_batch(model, [job.encoded[row] for job, rows in parts for row in rows])
    states = {
        layers: model.base_model(**whole, return_dict=True, read=read, num_layers=layers)
        for layers, read in wanted.items()
    }
    first = start = 0  # sequence and token of the part
    for job, indices in parts:
        inputs = make_batch(model, [job.encoded[row] for row in indices])
        sequences = MinBertSequences.from_offsets(
            inputs["cu_seq_lens_q"], inputs["max_length_q"], tuple(inputs["input_ids"].shape)
        )
        last, end = first + len(sequences.offsets) - 1, start + sequences.tokens
        for member in job.members:
            read, layers = member.states
            known, pooler = states[layers], model.base_model.pooler
            if known.sequences is None:
                known = _first(known.last_hidden_state[first:last], pooler)
            elif read == "first":
                tokens = known.last_hidden_state[start:end]
                known = _first(tokens.index_select(0, sequences.first).unsqueeze(1), pooler)
            else:
                known = MinBertModelOutput(known.last_hidden_state[start:end], sequences=sequences)
            member.keep(indices, inputs, member.run(inputs, [member.name], known)[member.name])
        first, start = last, end


def _first(states: Tensor, pooler: Any) -> MinBertModelOutput:
    """Return the output of an encoder with states of first tokens, (N, 1, D)."""
    return MinBertModelOutput(states, None if pooler is None else pooler(states))
