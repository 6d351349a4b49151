# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Inference over many rows of text: sorted by length, in batches of so many tokens, as a stream.

A row is a sentence, or a pair of them; a model makes a few numbers of each.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, groupby, islice
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer
from transformers.utils import logging

Row = tuple[str, ...]

# Rows that are tokenized and sorted together: enough for batches of one length, little to hold.
WINDOW = 16_384
# More rows than this show a progress bar.
QUIET_ROWS = 500
# Tokens of a batch where nothing else is said: what stays in the caches of a CPU, or fills a GPU.
CPU_TOKENS = 1_024
GPU_TOKENS = 65_536
# Share of what stays of a text that is too long and is taken from its start. Source: Sun et al.
# 2019, section 5.3.1: 128 of 510 tokens.
HEAD_SHARES = {"head": 1.0, "tail": 0.0, "head_tail": 128 / 510}


class Encoded(NamedTuple):
    """The tokens of one row.

    Args:
        input_ids: For each of its sequences the ids (two for separate pairs, else one).
        token_type_ids: The segments of these.
    """

    input_ids: list[list[int]]
    token_type_ids: list[list[int]]

    @property
    def tokens(self) -> int:
        """Tokens of all its sequences."""
        return sum(map(len, self.input_ids))


# Keyword arguments that locate a checkpoint.
HUB_KEYS = ("cache_dir", "force_download", "local_files_only", "token", "revision", "subfolder")


class MinBertTokenizing:
    """What models have that read texts: their tokenizer."""

    config: Any
    name_or_path: str
    _tokenizer: Any = None
    # Where the checkpoint was found, beside its name: revision, subfolder, ...
    _found_by: ClassVar[dict[str, Any]] = {}

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
        """Load a checkpoint; see `PreTrainedModel.from_pretrained`.

        Args:
            pretrained_model_name_or_path: Folder or Hub id.
            *args: As there.
            **kwargs: As there; the tokenizer is looked for by the same `revision`, `subfolder`, ...
        """
        # a secret does not stay with the model, which may be pickled
        kept = [name for name in HUB_KEYS if name != "token" and kwargs.get(name) is not None]
        found_by = {name: kwargs[name] for name in kept}
        parent: Any = super()
        found = parent.from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        model = found[0] if isinstance(found, tuple) else found
        model._found_by = found_by
        return found

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of texts: that of the checkpoint, or the one assigned.

        Raises:
            ValueError: If none was assigned and the checkpoint has none.
        """
        if self._tokenizer is None:
            if not self.name_or_path:
                raise ValueError("this model came from no checkpoint: set model.tokenizer first")
            # Without the configuration it would be read again, and trust asked for again.
            self._tokenizer = AutoTokenizer.from_pretrained(
                self.name_or_path, config=self.config, **self._found_by
            )
            if len(self._tokenizer) <= len(self._tokenizer.all_special_ids):
                self._tokenizer = None
                raise ValueError(
                    f"{self.name_or_path} has no tokenizer: set model.tokenizer, or add its "
                    "tokenizer.json or vocab.txt"
                )
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __dir__(self) -> list[str]:
        # torch.jit.trace reads all that is listed, and to read the tokenizer is to load it
        return [name for name in super().__dir__() if name != "tokenizer"]


def check_rows(sentences: Iterable[Any], task: str, wanted: int) -> Iterator[Row]:
    """Make each row a tuple of `wanted` sentences.

    Args:
        sentences: The rows.
        task: What they are for.
        wanted: Sentences of a row.

    Raises:
        TypeError: If `sentences` is one string.
        ValueError: If a row has another number of sentences.
    """
    if isinstance(sentences, str):
        raise TypeError(f"{task}: pass a list of sentences, not one string")
    return (_check_row(row, index, task, wanted) for index, row in enumerate(sentences))


def _check_row(given: Any, index: int, task: str, wanted: int) -> Row:
    row: Row = tuple(given) if isinstance(given, tuple | list) else (given,)
    if len(row) != wanted or not all(isinstance(text, str) for text in row):
        count = "a sentence" if wanted == 1 else "a pair of sentences"
        raise ValueError(f"{task}: row {index} must be {count}, got {given!r}")
    return row


def tokenize(
    tokenizer: Any,
    rows: Sequence[Row],
    *,
    separate: bool,
    max_length: int,
    truncation: str = "head",
) -> list[Encoded]:
    """Tokenize rows without padding.

    Args:
        tokenizer: Of transformers.
        rows: All with as many sentences.
        separate: Whether each sentence is a sequence of its own.
        max_length: Tokens of a sequence at most; longer ones are cut.
        truncation: What stays of those: `head`, `tail` or `head_tail`.
    """
    # Column by column, which is how a tokenizer takes pairs.
    texts = [list(chain.from_iterable(rows))] if separate else [list(x) for x in zip(*rows)]  # noqa: B905 - checked
    whole = truncation != "head"  # a tokenizer cannot cut what is in the middle
    encoded = tokenizer(
        *texts,
        truncation=not whole,
        max_length=None if whole else max_length,
        return_token_type_ids=True,
        return_attention_mask=False,
        return_special_tokens_mask=whole,
        verbose=not whole,  # no warning of sequences that are too long
    )
    columns = {name: encoded[name] for name in Encoded._fields}
    if whole:
        for row, special in enumerate(encoded["special_tokens_mask"]):
            kept = _choose_tokens(special, max_length, HEAD_SHARES[truncation])
            for column in columns.values():
                column[row] = [column[row][place] for place in kept]
    step = len(columns["input_ids"]) // len(rows)
    return [
        Encoded(*(column[first : first + step] for column in columns.values()))
        for first in range(0, len(columns["input_ids"]), step)
    ]


def _choose_tokens(special: Sequence[int], max_length: int, head_share: float) -> list[int]:
    """Choose the places that stay; of two texts the longer one is cut first, as by a tokenizer."""
    places = range(len(special))
    if len(special) <= max_length:
        return list(places)
    texts = [list(run) for added, run in groupby(places, special.__getitem__) if not added]
    room = max_length - sum(special)
    longer = max(reversed(texts), key=len)  # the second one, if both are as long
    shorter_size = min(sum(map(len, texts)) - len(longer), room // 2)
    dropped: set[int] = set()
    for text in texts:
        size = room - shorter_size if text is longer else shorter_size
        head = round(head_share * size)
        dropped.update(text[head : len(text) - (size - head)])
    return [place for place in places if place not in dropped]


def pack(rows: Sequence[Encoded]) -> dict[str, Any]:
    """Put all sequences one after the other; what models take as a packed batch."""
    sequences = [ids for row in rows for ids in row.input_ids]
    types = (kinds for row in rows for kinds in row.token_type_ids)
    lengths = torch.tensor([len(ids) for ids in sequences])
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    starts = offsets[:-1].repeat_interleave(lengths)
    return {
        "input_ids": torch.tensor([list(chain.from_iterable(sequences))]),
        "token_type_ids": torch.tensor([list(chain.from_iterable(types))]),
        "position_ids": (torch.arange(int(offsets[-1])) - starts).unsqueeze(0),
        "cu_seq_lens_q": offsets.int(),
        "max_length_q": int(lengths.max()),
    }


def pad(rows: Sequence[Encoded], padding: int) -> dict[str, Any]:
    """Pad all sequences to the longest, (B, L), or (B, 2, L) for separate pairs."""
    sequences = [ids for row in rows for ids in row.input_ids]
    types = [kinds for row in rows for kinds in row.token_type_ids]
    longest = max(map(len, sequences))
    missing = [longest - len(ids) for ids in sequences]
    columns = {
        "input_ids": [x + [padding] * n for x, n in zip(sequences, missing, strict=True)],
        "token_type_ids": [x + [0] * n for x, n in zip(types, missing, strict=True)],
        "attention_mask": [[1] * (longest - n) + [0] * n for n in missing],
    }
    batch = {name: torch.tensor(column) for name, column in columns.items()}
    if len(sequences) > len(rows):
        batch = {name: values.unflatten(0, (len(rows), -1)) for name, values in batch.items()}
    return batch


def deal(rows: Sequence[Encoded], max_tokens: int, *, packed: bool) -> Iterator[list[int]]:
    """Deal rows to batches, the longest first, so that too large a batch fails at once.

    Args:
        rows: The rows.
        max_tokens: Tokens of a batch at most, unless one row has more.
        packed: Whether only real tokens count, or paddings too.

    Yields:
        The indices of the rows of a batch.
    """
    batch: list[int] = []
    used = longest = 0
    for index in sorted(range(len(rows)), key=lambda index: -rows[index].tokens):
        longest = max(longest, *map(len, rows[index].input_ids))
        size = used + rows[index].tokens
        if not packed:
            size = (len(batch) + 1) * longest * len(rows[index].input_ids)
        if batch and size > max_tokens:
            yield batch
            batch, longest = [], max(map(len, rows[index].input_ids))
            size = rows[index].tokens if packed else longest * len(rows[index].input_ids)
        batch.append(index)
        used = size
    if batch:
        yield batch


def stream(
    model: nn.Module,
    rows: Iterable[Row],
    encode: Callable[[Sequence[Row]], list[Encoded]],
    compute: Callable[[dict[str, Any]], Tensor],
    *,
    max_tokens: int | None,
    show_progress: bool | None,
) -> Iterator[Tensor]:
    """Compute numbers for rows, window by window, without dropout or gradients.

    Args:
        model: The model; it is in evaluation mode only while it computes.
        rows: The rows; read as far as results are consumed.
        encode: Tokenizes rows.
        compute: Makes (rows, K) of a batch.
        max_tokens: Tokens of a batch at most; None for what suits the device.
        show_progress: Whether to show a progress bar; None shows it for long lists.

    Returns:
        For each window of rows, in their order, (n, K) in float32 on the CPU.

    Raises:
        ValueError: If `max_tokens` is below 1.
    """
    tokens = choose_tokens(model, max_tokens)

    def run() -> Iterator[Tensor]:
        for window, bar in windows_of(rows, show_progress):
            results: list[tuple[list[int], Tensor]] = []
            encoded = encode(window)
            with evaluating(model), torch.no_grad():  # no inference_mode: users train on results
                for indices, inputs in batches(model, encoded, tokens):
                    results.append((indices, compute(inputs).float()))
                    bar.update(len(indices))
            order = torch.tensor([index for indices, _ in results for index in indices])
            values = torch.cat([values for _, values in results]).cpu()
            yield torch.empty_like(values).index_copy_(0, order, values)

    return run()


def choose_tokens(model: nn.Module, max_tokens: int | None) -> int:
    """Return the tokens of a batch at most.

    Raises:
        ValueError: If `max_tokens` is below 1.
    """
    if max_tokens is None:
        max_tokens = GPU_TOKENS if _device(model).type == "cuda" else CPU_TOKENS
    if max_tokens < 1:
        raise ValueError(f"max_tokens_per_batch={max_tokens} must be at least 1")
    return max_tokens


def windows_of(rows: Iterable[Any], show_progress: bool | None) -> Iterator[tuple[list[Any], Any]]:
    """Read rows some thousand at a time, each with the progress bar that counts them."""
    total = len(rows) if isinstance(rows, Sequence) else None
    quiet = total is not None and total <= QUIET_ROWS
    hide = quiet if show_progress is None else not show_progress
    source = iter(rows)
    with logging.tqdm(total=total, disable=hide, unit="row") as bar:
        while window := list(islice(source, WINDOW)):
            yield window, bar


def batches(
    model: Any, encoded: Sequence[Encoded], max_tokens: int
) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """Split rows into batches of similar length, packed if the model takes them.

    Yields:
        The indices of the rows of a batch, and what the model takes, on its device.
    """
    device, packed = _device(model), model.supports_packed_input()
    for indices in deal(encoded, max_tokens, packed=packed):
        chosen = [encoded[index] for index in indices]
        inputs = pack(chosen) if packed else pad(chosen, model.config.pad_token_id or 0)
        on_device = {
            name: value.to(device) if isinstance(value, Tensor) else value
            for name, value in inputs.items()
        }
        yield indices, on_device


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and every part back into the mode it was in."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:  # one by one: a frozen encoder may have been in eval mode
            module.training = True
