# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Inference over many rows, each a sentence or a pair: sorted by length, in batches, streamed.

Several threads may predict with one model: a call changes nothing that another one sees, except
that modules stay in evaluation mode while any call needs them so.
"""

import inspect
import json
import os
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub import try_to_load_from_cache
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import logging
from transformers.utils.hub import cached_file

from .cpu import (
    MinBertCalls,
    check_precision,
    find_tree,
    is_followed,
    precision_for,
    using_precision,
    walk,
)
from .packing import States, pool_outputs, reads
from .rows import (
    CPU_TOKENS,
    WINDOW,
    Batching,
    EmbeddingPlan,
    TextReader,
    VectorPlan,
    check_batching,
    check_count,
    group_by_tokens,
    split_batches,
)
from .texts import Encoded, list_parts

logger = logging.get_logger(__name__)

# More rows than this show a progress bar.
QUIET_ROWS = 500
# Default tokens of a batch: what fills a GPU.
GPU_TOKENS = 65_536
# Share of pieces with upper-case letters above which a vocabulary is cased; BERT's uncased: 0.
LEAST_CASED = 0.01
# A pattern that matches white space alone.
SPACES = re.compile(r"(\\[nrst]|[ \n\r\t\u2581|+\[\]]|\{\d*,?\d*\})+")
# A step of a tokenizer, such as a normalizer, as `tokenizer.json` describes it.
Step = dict[str, Any]
# What a class of tokenizers fixes in its steps, and no setting changes.
FIXED = ("type", "pattern", "content", "clean_text", "split", "use_regex")
# Options of a tokenizer's model that decide about words; and a character that no vocabulary has.
MODEL_OPTIONS = (
    *("unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback"),
    *("ignore_merges", "max_input_chars_per_word"),
)
NO_CHARACTER = "\U0010fffd"
STEPS = ("normalizer", "pre_tokenizer")
# Options of the steps of tokenizers, and their keys in tokenizer_config.json.
STEP_OPTIONS = {
    "lowercase": "do_lower_case",
    "strip_accents": "strip_accents",
    "handle_chinese_chars": "tokenize_chinese_chars",
    "add_prefix_space": "add_prefix_space",
    "prepend_scheme": "add_prefix_space",
}
# Inputs of a model: tensors, and the length of the longest sequence of a packed batch.
Batch = dict[str, Any]
# Keyword arguments that locate a checkpoint, and their values.
Where = dict[str, Any]
HUB_KEYS = ("cache_dir", "force_download", "local_files_only", "token", "revision", "subfolder")


class MinBertPrecision:
    """Mixin of models: the precision of their predictions, and of their weights."""

    base_model: Any

    def set_precision(self, precision: str | None, *, fixed_weights: bool = False) -> None:
        """Set in which precision predictions are computed, also by pipelines.

        It concerns the layers of the encoder, in evaluation mode without gradients. Inputs, heads
        and results stay in the precision of the weights, which do not change: they are converted
        once, and again after they have changed, for which every call compares them with a copy.
        That takes longer than a short text.

        Args:
            precision: `float32`; `bfloat16`, whose results differ by about 0.1 %; `int8`, by about
                1 % (see `quantize` for weights that are stored so); `auto` for bfloat16 where the
                device is fast in it, else float32, but for weights in int8 theirs; None for that
                of the weights.
            fixed_weights: Promise that the weights change no more, or only as torch counts: by
                optimizers, by loading, by operations on parameters, and where modules are
                replaced. Changes through `.data` or numpy may then be overlooked, but a call does
                not compare the weights, and there is no copy of them.

        Raises:
            ValueError: If there is no such precision.
        """
        self.base_model.precision = precision_for(self.base_model, precision)
        self.base_model.fixed_weights = fixed_weights
        self.base_model.calls.prepared = None  # whatever has changed since

    def quantize(self) -> None:
        """Convert the weights of the encoder to int8, for inference; see `MinBertInt8Config`.

        `save_pretrained` then writes a folder of about a quarter of the size, which loads as any
        other. A model in int8 cannot be trained; `dequantize` makes it float32 again.

        Raises:
            ValueError: If it is in int8, an adapter wraps its layers, or a weight is not finite.
        """
        from .int8 import quantize

        check_weights(self, type(self).__name__)
        quantize(self)


# Tokenizers and weights


def load_tokenizer(path: str, config: Any, where: Where) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a checkpoint; `where` are the keyword arguments that locate it."""
    if not path:
        raise ValueError("this model came from no checkpoint: set model.tokenizer first")
    options = dict(where)
    if config.encoder_type == "bert":  # others tell the class of their tokenizer
        options["config"] = config  # which would be loaded again
    try:
        tokenizer = read_tokenizer(path, **options)
    except (OSError, ValueError):
        raise
    except Exception as error:  # the library of fast tokenizers has no other class
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{path}: cannot read its tokenizer ({reason})") from error
    if "auto_map" in tokenizer.init_kwargs:
        raise ValueError(
            f"{path} has a tokenizer with code of its own (auto_map), which is not run: load it "
            "yourself with trust_remote_code=True, and set model.tokenizer"
        )
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ValueError(
            f"{path} has no tokenizer: set model.tokenizer, or add its tokenizer.json or vocab.txt"
        )
    return tokenizer


def read_tokenizer(path: str, **options: Any) -> PreTrainedTokenizerBase:
    """Load a tokenizer as its files describe it, without running code of the checkpoint.

    Of some classes, such as `RobertaTokenizer`, transformers 5 takes vocabulary and special tokens
    from `tokenizer.json`, and drops what else the class does not have: steps like NFKC, another
    model or prefix, another frame of special tokens. A file with such is read as it is. Options of
    a step are those of the class and `tokenizer_config.json`, as in transformers; a warning names
    one that differs.

    Args:
        path: Folder or Hub id.
        **options: Those of `AutoTokenizer.from_pretrained`.
    """
    own = {name: value for name, value in options.items() if name != "config"}
    tokenizer: Any
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            path, **options, **find_casing(path, **options), trust_remote_code=False
        )
    except (TypeError, ValueError) as error:  # of a class that has another model than the file
        if find_file(path, "tokenizer.json", **options) is None:
            raise
        return read_without_class(path, own, error)
    names = ("tokenizer.json", "tokenizer_config.json")
    files = [find_file(path, name, **options) for name in names]
    if files[0] is None or not tokenizer.is_fast:
        return tokenizer
    written, settings = (json.loads(file.read_text("utf-8")) if file else {} for file in files)
    of_file = read_steps(written, tokenizer)
    steps = list(zip(list_steps(tokenizer.backend_tokenizer), list_steps(of_file), strict=True))
    has_steps = all(list_kinds(ours) == list_kinds(theirs) for ours, theirs in steps)
    by_class = tokenizer
    if not has_steps or not is_read_as(written, of_file, tokenizer):
        own |= tokenizer._special_tokens_map  # which its files need not name
        own["model_input_names"] = tokenizer.model_input_names
        tokenizer = PreTrainedTokenizerFast.from_pretrained(path, **own)
    if not has_steps:
        return tokenizer
    for part, (ours, theirs) in zip(STEPS, steps, strict=True):
        if tokenizer is not by_class:  # the options of both are those of the class
            setattr(tokenizer.backend_tokenizer, part, getattr(by_class.backend_tokenizer, part))
        warn_of_options(path, ours, theirs, settings)
    return tokenizer


def read_without_class(
    path: str, options: dict[str, Any], error: Exception
) -> PreTrainedTokenizerFast:
    """Read a `tokenizer.json` as it is, after the error of the class that its folder names."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(path, **options)
    if "auto_map" in tokenizer.init_kwargs:
        raise error
    if tokenizer.pad_token is None:
        raise ValueError(
            f"{path}: the class of its tokenizer cannot read tokenizer.json ({error}), and "
            "tokenizer_config.json names no pad_token to read it without the class: name all "
            "special tokens there"
        ) from error
    return tokenizer


def read_steps(written: dict[str, Any], tokenizer: Any) -> Any:
    """Read the steps of a `tokenizer.json` as this version of the library writes them."""
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}  # instead of all its words
    bare: dict[str, Any] = {"version": "1.0", "added_tokens": [], "model": model}
    bare |= dict.fromkeys(("truncation", "padding", "decoder"))
    bare |= {part: written.get(part) for part in (*STEPS, "post_processor")}
    return type(tokenizer.backend_tokenizer).from_str(json.dumps(bare))


def list_steps(backend: Any) -> list[list[Step]]:
    """List the parts of the normalizer and of the pre-tokenizer."""
    return [list_parts(getattr(backend, part)) for part in STEPS]


def is_read_as(written: dict[str, Any], of_file: Any, tokenizer: Any) -> bool:
    """Return whether a tokenizer has the model, frame and added tokens of its `tokenizer.json`."""
    model, read = written.get("model") or {}, tokenizer.backend_tokenizer.model
    options = {name: getattr(read, name) for name in MODEL_OPTIONS if hasattr(read, name)}
    options["type"] = type(read).__name__
    if any((model.get(name, value) or None) != (value or None) for name, value in options.items()):
        return False
    # a unigram model has no name for its unknown token
    unknown = None if model.get("byte_fallback") else model.get("unk_id")
    if unknown is not None and read.tokenize(NO_CHARACTER)[0].id != unknown:
        return False
    # the special tokens around a text and a pair
    text, frames = of_file.encode("a", add_special_tokens=False), []
    for processor in (of_file.post_processor, tokenizer.backend_tokenizer.post_processor):
        of_file.post_processor = processor
        frames.append([of_file.post_process(*texts).ids for texts in ((text,), (text, text))])
    added = {(token["id"], token["content"]) for token in written.get("added_tokens") or ()}
    known = {(index, str(token)) for index, token in tokenizer.added_tokens_decoder.items()}
    return frames[0] == frames[1] and added <= known


def warn_of_options(
    path: str, read: list[Step], written: list[Step], settings: dict[str, Any]
) -> None:
    """Name options of the steps of `tokenizer.json` that are read otherwise."""
    by_type = {step["type"]: step for step in read}
    for theirs in written:
        ours = by_type.get(theirs["type"], theirs)
        for name, key in STEP_OPTIONS.items():
            values = {ours.get(name), theirs.get(name, ours.get(name))}
            # both put a space before the first word of a text
            if key not in settings and len(values) > 1 and values != {"first", "always"}:
                logger.warning(
                    "%s: tokenizer.json has %s=%s, but the tokenizer is read with %s, as "
                    "transformers does where tokenizer_config.json has no %s: set it there",
                    *(path, name, theirs[name], ours.get(name), key),
                )


def list_kinds(steps: list[Step]) -> list[Step]:
    """List what is fixed in steps, but for those of white space that give the same words."""
    kinds: list[Step] = []
    for place, step in enumerate(steps):
        types = [each["type"] for each in steps[place : place + 2]]
        is_equal = types[0] == "Strip" or types == ["WhitespaceSplit", "Metaspace"]
        if types[0] == "Replace" and step["content"] in (" ", "\u2581"):
            is_equal = SPACES.fullmatch("".join(step["pattern"].values())) is not None
        if not is_equal:
            kinds.append({name: step[name] for name in FIXED if name in step})
    return kinds


def find_file(path: str | os.PathLike[str], name: str, **where: Any) -> Path | None:
    """Return a file of a folder or Hub id, None if it has none; `where` locates it."""
    if Path(path).is_file():
        return None
    found = cached_file(
        path,
        name,
        **{key: where[key] for key in (*HUB_KEYS, "proxies") if key in where},
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else Path(found)


def is_known(path: str, name: str, **where: Any) -> bool:
    """Return whether the cache tells if a repository has a file, as after asking the Hub for it."""
    file = f"{where['subfolder']}/{name}" if where.get("subfolder") else name
    options = {key: where.get(key) for key in ("cache_dir", "revision")}
    return try_to_load_from_cache(path, file, **options) is not None


def find_casing(path: str | os.PathLike[str], **where: Any) -> dict[str, Any]:
    """Return how to load the tokenizer of a cased vocabulary whose files do not say that it is one.

    Without them, `BertTokenizer` lower-cases, and `Film` is unknown though the vocabulary has it.

    Args:
        path: Folder or Hub id.
        **where: What locates its files, such as `revision`.
    """
    try:
        files = [
            find_file(path, name, **where)
            for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
        ]
        tokenizer, settings, vocabulary = (file and file.read_text("utf-8") for file in files)
    except (OSError, ValueError):  # who loads the tokenizer says it better
        return {}
    if tokenizer or "do_lower_case" in (settings or "") or not vocabulary:
        return {}
    pieces = vocabulary.split("\n")
    is_cased = len(find_upper(pieces)) > LEAST_CASED * len(pieces)
    return {"do_lower_case": False} if is_cased else {}


def find_upper(pieces: Iterable[str]) -> list[str]:
    """Return the pieces of a vocabulary with upper-case letters, special tokens left out."""
    return [piece for piece in pieces if piece != piece.lower() and piece[:1] + piece[-1:] != "[]"]


def is_called_by(package: str) -> bool:
    """Return whether a module of a package is among the callers."""
    frame = inspect.currentframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package:
            return True
        frame = frame.f_back
    return False


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, config: Any, where: str = "") -> None:
    """Refuse a tokenizer that gives a token an id without an embedding, or another padding id."""
    token, greatest = max(tokenizer.get_vocab().items(), key=lambda item: item[1])
    if greatest >= config.vocab_size:
        raise ValueError(
            f"{where or 'model'}: the tokenizer gives the token {token!r} the id {greatest}, but "
            f"the model has embeddings for {config.vocab_size} tokens only (vocab_size): take the "
            "tokenizer of this model, or after adding tokens call model.resize_token_embeddings"
        )
    padding = tokenizer.pad_token_id
    # CODEPATH: roberta, xlm-roberta, camembert, mpnet; in all others positions are columns
    if config.position_offset and padding not in (None, config.pad_token_id):
        raise ValueError(
            f"{where or 'model'}: the padding id of the tokenizer is {padding}, but positions of "
            f"the model count from its pad_token_id={config.pad_token_id}: take its tokenizer"
        )


def check_weights(model: Any, where: object) -> None:
    """Refuse a model with weights that are not finite, as a diverged training leaves them."""
    for name, value in model.named_parameters():
        if not value.is_meta and not value.isfinite().all():
            raise ValueError(
                f"{str(where)!r}: {name} has values that are not finite; its training diverged, or "
                "the file is damaged"
            )


def pack(rows: Sequence[Encoded]) -> Batch:
    """Concatenate all sequences to a packed batch."""
    sequences = [ids for row in rows for ids in row.input_ids]
    types = [kinds for row in rows for kinds in row.token_type_ids]
    lengths = [len(ids) for ids in sequences]
    columns = (sequences, types, map(range, lengths))
    ids, kinds, positions = (torch.tensor([list(chain.from_iterable(x))]) for x in columns)
    return {
        "input_ids": ids,
        "token_type_ids": kinds,
        "position_ids": positions,
        "cu_seq_lens_q": torch.tensor([0, *accumulate(lengths)], dtype=torch.int32),
        "max_length_q": max(lengths),
    }


def pad(rows: Sequence[Encoded], padding: int) -> Batch:
    """Pad all sequences to the longest, (B, L), or (B, 2, L) for separate pairs."""
    ids, types = ([torch.tensor(x) for row in rows for x in row[column]] for column in (0, 1))
    pad_rows = partial(nn.utils.rnn.pad_sequence, batch_first=True)
    batch = {
        "input_ids": pad_rows(ids, padding_value=padding),
        "token_type_ids": pad_rows(types),
        "attention_mask": pad_rows([torch.ones_like(x) for x in ids]),
    }
    if len(ids) > len(rows):
        batch = {name: values.unflatten(0, (len(rows), -1)) for name, values in batch.items()}
    return batch


def make_batch(model: Any, rows: Sequence[Encoded]) -> Batch:
    """Make the inputs of rows on the device of a model, packed if it can read that."""
    packed, device = model.supports_packed_input(), model.device
    batch = pack(rows) if packed else pad(rows, model.config.pad_token_id or 0)
    return {name: x.to(device) if isinstance(x, Tensor) else x for name, x in batch.items()}


def put_in_order(results: Sequence[tuple[list[int], Tensor]]) -> Tensor:
    """Join the values of batches, (B, ...), by their indices: of one that comes twice the last."""
    values = torch.cat([values for _, values in results])
    indices = chain.from_iterable(indices for indices, _ in results)
    places = {index: place for place, index in enumerate(indices)}
    order = torch.tensor([places[index] for index in range(len(places))])
    return values.index_select(0, order.to(values.device))


def choose_tokens(model: Any) -> int:
    """Return the maximum tokens of a batch by default."""
    return GPU_TOKENS if model.device.type == "cuda" else CPU_TOKENS


def windows_of(
    rows: Iterable[object], show_progress: bool | None, size: int = WINDOW
) -> Iterator[tuple[list[Any], Any]]:
    """Read `size` rows at a time, each time with the progress bar that counts them."""
    total = len(rows) if isinstance(rows, Sequence) else None
    source = iter(rows)
    window = list(islice(source, size))
    hide = len(window) <= QUIET_ROWS if show_progress is None else not show_progress
    with logging.EmptyTqdm() if hide else logging.tqdm(total=total, unit="row") as bar:
        while window:
            yield window, bar
            window = list(islice(source, size))


def batches(
    model: Any, encoded: Sequence[Encoded], max_tokens: int
) -> Iterator[tuple[list[int], Batch]]:
    """Split rows into batches of similar length: indices and inputs, packed if the model can."""
    for indices in split_batches(encoded, max_tokens, packed=model.supports_packed_input()):
        yield indices, make_batch(model, [encoded[index] for index in indices])


@contextmanager
def predicting(model: nn.Module, precision: str | None) -> Iterator[None]:
    """Switch a model to evaluation without gradients, in a precision; None for its own."""
    # no inference_mode: users train on results
    with evaluating(model), torch.no_grad(), using_precision(model, precision):
        yield


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch a model to evaluation mode, and afterwards every module back to its own mode.

    The last one of several threads switches back.
    """
    base: Any = getattr(model, "base_model", model)
    calls: MinBertCalls | None = getattr(base, "calls", None)
    if calls is None:  # of another model
        calls, known, encoder = MinBertCalls(), [], None
    else:
        known, encoder = find_tree(base).modules, base.encoder
    evaluated = calls.evaluated
    with calls.lock:
        # one by one: a frozen encoder may have been in eval mode
        switched = [
            module
            for module in chain(walk(model, but=encoder), known)
            if module.training or (evaluated and module in evaluated)
        ]
        for module in switched:
            evaluated[module] = evaluated.get(module, 0) + 1
            module.training = False
    try:
        yield
    finally:
        with calls.lock:
            for module in switched:
                evaluated[module] -= 1
                if not evaluated[module]:
                    del evaluated[module]
                    module.training = True


class Predictor:
    """How the rows of a window are computed.

    Its methods are called in this order for every window: `encode`, which also checks its rows,
    `run` and `keep` for each batch, and `describe`.

    Attributes:
        name: Name of the task.
        group: What `encode` depends on: predictors with equal ones tokenize a window once.
        size: Number of rows of a window.
        shares_pass: Whether other tasks with equal tokens are computed in the same pass.
    """

    model: Any
    name: str
    group: Hashable
    size = WINDOW
    shares_pass = True

    def encode(self, rows: Sequence[object], first: int) -> list[Encoded]:
        """Tokenize the rows of a window, of which the first one has the number `first`."""
        raise NotImplementedError

    @property
    def states(self) -> States:
        """Which states of a pack are read, and of which layer."""
        layers = self.model.config.num_hidden_layers
        return "tokens", self.model.config.task(self.name).count_layers(layers)

    def run(self, inputs: Batch, names: list[str], known: Any = None) -> Any:
        """Compute a batch: the outputs of tasks by name; `known` is the encoder's for a pack."""
        if known is None:
            # without the autocast that accelerate leaves around it after mixed precision
            forward = vars(self.model).get("_original_forward", self.model)
            return forward(**inputs, return_dict=True, task=names)
        columns = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")
        options = {name: inputs[name] for name in ("cu_seq_lens_q", "max_length_q")}
        given = tuple(map(inputs.get, columns))
        return self.model.compute_several(names, given, options, {self.states: known})

    def keep(self, indices: list[int], inputs: Batch, output: Any) -> None:
        """Keep what `describe` needs of a batch: the output for the encoded rows at `indices`."""
        raise NotImplementedError

    def describe(self) -> Any:
        """Return the predictions of the window, one per row, and forget it."""
        raise NotImplementedError


class Windows(NamedTuple):
    """The windows of a batch."""

    texts: Tensor  # the text of each window, ascending, (N,)
    num_texts: int  # P
    tokens: Tensor  # tokens of each window, special ones included, (N,)

    def pool(self, vectors: Tensor) -> Tensor:
        """Average the vectors of windows, weighted by their tokens, (N, D) -> (P, D).

        The vector of a text in one window is that of the window, to the last bit.
        """
        dtype = torch.promote_types(vectors.dtype, torch.float32)
        weights = self.tokens.to(dtype)
        sums = weights.new_zeros(self.num_texts).index_add(0, self.texts, weights)
        weights = (weights / sums[self.texts]).unsqueeze(1)
        pooled = vectors.new_zeros(self.num_texts, vectors.shape[1], dtype=dtype)
        pooled = pooled.index_add(0, self.texts, vectors.to(dtype) * weights)
        return pooled.to(vectors.dtype)


def find_windows(counts: Tensor | None, tokens: Tensor, task: str) -> Windows:
    """Find the text of each window from the windows of the texts; None if each has one.

    Args:
        counts: Windows of each text, (B,) or (B, 2).
        tokens: Tokens of each window, (N,).
        task: Name of the task.

    Raises:
        ValueError: If the counts do not add up to the windows.
    """
    total, device = len(tokens), tokens.device
    if counts is None:
        return Windows(torch.arange(total, device=device), total, tokens)
    counts = counts.flatten()
    # elsewhere checking the values would synchronize the device
    if counts.device.type == "cpu" and not is_followed(counts) and int(counts.sum()) != total:
        raise ValueError(
            f"task {task!r}: num_windows adds up to {int(counts.sum())} windows, but the batch has "
            f"{total} sequences"
        )
    texts = torch.arange(len(counts), device=device).repeat_interleave(counts, output_size=total)
    return Windows(texts, len(counts), tokens)


class VectorPredictor(TextReader, Predictor):
    """Computes a vector of each text."""

    shares_pass = False

    def __init__(
        self, model: Any, name: str, plan: VectorPlan, num_texts: int = 1, prompt: str = ""
    ) -> None:
        super().__init__(model, name, plan.encoding, num_texts, prompt)
        self.group, self.plan = name, plan
        self.results: list[tuple[list[int], Tensor]] = []

    @property
    def states(self) -> States:
        return reads(self.plan.pooling), self.plan.num_layers

    def run(self, inputs: Batch, names: list[str], known: Any = None) -> Any:
        if known is None:
            read, layers = self.states
            known = self.model.base_model(**inputs, return_dict=True, read=read, num_layers=layers)
        return {self.name: pool_outputs(known, inputs.get("attention_mask"), self.plan.pooling)}

    def keep(self, indices: list[int], inputs: Batch, output: Any) -> None:
        self.results.append((indices, output))

    def collect(self) -> Tensor:
        """Return the vectors of the window, (number of texts, D), and forget it."""
        vectors, self.results = put_in_order(self.results), []
        if not self.has_windows:
            return vectors
        counts = torch.tensor([len(windows) for windows in self.texts], device=vectors.device)
        sizes = [window.tokens for windows in self.texts for window in windows]
        tokens = torch.tensor(sizes, device=vectors.device)
        return find_windows(counts, tokens, self.name).pool(vectors)


class PooledPredictor(VectorPredictor):
    """Predicts a task with one vector per sequence; see `PooledHead`."""

    def __init__(self, model: Any, name: str, top_k: int | None) -> None:
        check_count("top_k", top_k)
        self.head, self.top_k = model._head(name), top_k
        task = self.head.task
        super().__init__(model, name, task.plan_vectors(model.config), task.num_texts)
        if not self.has_windows:  # which are pooled by the task that has made them
            self.group, self.shares_pass = (self.num_texts, self.encoding), True

    def run(self, inputs: Batch, names: list[str], known: Any = None) -> Any:
        # the windows of a text are in several batches, and are pooled before the head
        owner = VectorPredictor if self.has_windows else Predictor
        return owner.run(self, inputs, names, known)

    def keep(self, indices: list[int], inputs: Batch, output: Any) -> None:
        kept = output if self.has_windows else self.head.summarize(output.logits).float()
        super().keep(indices, inputs, kept)

    def collect(self) -> Tensor:
        """Return the logits of the window, (n, K) in float32 on the CPU, and forget it."""
        values = super().collect()
        if self.has_windows:
            count = self.head.task.num_sequences
            values = values if count is None else values.unflatten(0, (-1, count))
            with predicting(self.model, None):
                values = self.head.score_texts(values)
        return values.cpu()

    def describe(self) -> list[Any]:
        return self.head.describe(self.collect(), self.top_k)

    def teach(self) -> Tensor:
        """Return what students learn from the rows of the window, (n, K), and forget it."""
        return self.head.to_targets(self.collect())


class Embedder(VectorPredictor):
    """Makes the vectors of `encode`."""

    def __init__(self, model: Any, plan: EmbeddingPlan) -> None:
        super().__init__(model, "encode", plan.vectors, prompt=plan.prompt)
        self.finish, self.strips = plan.finish, plan.strips

    def describe(self) -> Tensor:
        """Return the vectors of the window, (n, D) in float32 on the CPU, and forget it."""
        return self.finish(self.collect(), lambda x: F.normalize(x.float(), dim=-1)).float().cpu()


def run_batch(members: Sequence[Predictor], indices: list[int], inputs: Batch) -> None:
    """Compute a batch of rows for the predictors that read them."""
    outputs = members[0].run(inputs, [member.name for member in members])
    for member in members:
        member.keep(indices, inputs, outputs[member.name])


def compute_rows(
    model: Any, predictors: Sequence[Predictor], rows: Iterable[object], batching: Batching
) -> Iterator[None]:
    """Compute rows window by window; each time the predictors have what they need of one."""
    name = predictors[0].name if predictors else "predict_all"
    tokens = check_batching(name, batching) or choose_tokens(model)
    precision = batching.get("precision")
    check_precision(precision)
    size = min((predictor.size for predictor in predictors), default=WINDOW)

    def run() -> Iterator[None]:
        first = 0
        for window, bar in windows_of(rows, batching.get("show_progress"), size):
            groups = group_by_tokens(predictors, window, first)
            total, done = sum(len(encoded) for encoded, _ in groups), 0
            with predicting(model, precision):
                for encoded, members in groups:
                    for indices, inputs in batches(model, encoded, tokens):
                        run_batch(members, indices, inputs)
                        before, done = done, done + len(indices)
                        bar.update(len(window) * done // total - len(window) * before // total)
            yield
            first += len(window)

    return run()
