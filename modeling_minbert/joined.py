# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Rows of many calls and tasks in one pass of the encoder, as a server computes them."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from .heads import TaskBatch
from .inference import Batch, VectorPredictor, choose_tokens, make_batch, predicting
from .jobs import Job, MinBertJoining
from .packing import MinBertModelOutput, MinBertSequences, Read, States, pool_outputs, reads
from .rows import split_batches


class MinBertJoined(MinBertJoining):
    """A model whose calls come in parts: tokens, passes for the rows of many calls, and results.

    Rows may be tokenized in several threads at once, and computed in another one.

    Args:
        model: A `MinBertForMultiTask`, or a `MinBertModel` for vectors.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.heads = getattr(model, "heads", {})
        self._predictor = getattr(model, "_predictor", None)
        self._plan, self._embedder = model._plan, model._embedder

    def choose_tasks(self, rows: Sequence[object], tasks: Sequence[str] | None) -> list[str]:
        """Return the tasks that take such rows; see `MinBertForMultiTask.choose_tasks`."""
        if not hasattr(self.model, "choose_tasks"):
            raise ValueError("the checkpoint has no tasks")
        return self.model.choose_tasks(rows, tasks)

    def compute(self, jobs: Sequence[Job], max_tokens: int | None = None) -> None:
        """Compute all rows of jobs, in as few passes as `max_tokens` in a batch allow."""
        rows = [(number, row) for number, job in enumerate(jobs) for row in range(len(job.encoded))]
        encoded = [jobs[number].encoded[row] for number, row in rows]
        is_packed = self.model.supports_packed_input()
        limit = max_tokens or choose_tokens(self.model)
        with predicting(self.model, None):
            for batch in split_batches(encoded, limit, packed=is_packed):
                chosen = sorted(rows[place] for place in batch)
                parts = [
                    (jobs[number], [row for _, row in of_job])
                    for number, of_job in groupby(chosen, key=itemgetter(0))
                ]
                if is_packed:
                    self._compute_packed(parts)
                    continue
                for job, indices in parts:  # an attention that knows no packs
                    inputs = make_batch(self.model, [job.encoded[row] for row in indices])
                    for member in job.members:
                        found = member.run(inputs, [member.name])
                        member.keep(indices, inputs, found[member.name])

    def _compute_packed(self, parts: Sequence[tuple[Job, list[int]]]) -> None:
        """Encode the rows of all jobs together, and run the heads of each job on its own rows."""
        wanted: dict[int | None, Read] = {}
        for read, layers in (
            self._find_states(member) for job, _ in parts for member in job.members
        ):
            wanted[layers] = "tokens" if "tokens" in (read, wanted.get(layers)) else read
        encoded = [job.encoded[row] for job, rows in parts for row in rows]
        whole, encode = make_batch(self.model, encoded), self.model.base_model
        states = {
            layers: encode(**whole, return_dict=True, read=read, num_layers=layers)
            for layers, read in wanted.items()
        }
        first = start = 0  # sequence and token of the part
        for job, indices in parts:
            inputs = make_batch(self.model, [job.encoded[row] for row in indices])
            sequences = MinBertSequences.from_offsets(
                inputs["cu_seq_lens_q"], inputs["max_length_q"], tuple(inputs["input_ids"].shape)
            )
            last, end = first + len(sequences.offsets) - 1, start + sequences.tokens
            for member in job.members:
                read, layers = self._find_states(member)
                known = self._cut(
                    states[layers], read, sequences, slice(first, last), slice(start, end)
                )
                member.keep(indices, inputs, self._run(member, inputs, {(read, layers): known}))
            first, start = last, end

    def _find_states(self, member: Any) -> States:
        """Return which states a predictor reads of a packed batch."""
        if isinstance(member, VectorPredictor):
            return reads(member.plan.pooling), member.plan.num_layers
        config = self.model.config
        return "tokens", config.task(member.name).count_layers(config.num_hidden_layers)

    def _cut(
        self, whole: Any, read: Read, sequences: MinBertSequences, rows: slice, tokens: slice
    ) -> MinBertModelOutput:
        """Cut the states of some sequences out of those of all."""
        if whole.sequences is None:  # first tokens
            pooled = whole.pooler_output
            return MinBertModelOutput(
                whole.last_hidden_state[rows], None if pooled is None else pooled[rows]
            )
        states = whole.last_hidden_state[tokens]
        if read == "tokens":
            return MinBertModelOutput(states, sequences=sequences)
        states = states.index_select(0, sequences.first).unsqueeze(1)
        pooler = self.model.base_model.pooler
        return MinBertModelOutput(states, None if pooler is None else pooler(states))

    def _run(self, member: Any, inputs: Batch, known: dict[States, MinBertModelOutput]) -> Any:
        """Return the output that a predictor keeps, from the states that it reads."""
        if isinstance(member, VectorPredictor) and not member.shares_pass:
            (states,) = known.values()
            return pool_outputs(states, None, member.plan.pooling)
        task = self.model.config.task(member.name)
        names = ("input_ids", "token_type_ids", "position_ids")
        ids, kinds, places = (inputs[name] for name in names)
        options = {name: inputs[name] for name in ("cu_seq_lens_q", "max_length_q")}
        count = 2 if task.is_separate else None
        batch = TaskBatch(member.name, (ids, None, kinds, places, None), options, count)
        return self.model.compute(batch, known)
