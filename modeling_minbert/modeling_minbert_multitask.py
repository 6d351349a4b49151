# Copyright 2026 The minBERT authors. All rights reserved.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""minBERT for several tasks: one encoder, and a named head for every task.

Tasks of pre-training are among them; they share BERT's own heads, as `cls`.

Shapes: B batch (rows), S sequences of a row (2 for separate pairs), N = B * S sequences, L tokens
of a sequence, D hidden size, K logits of a row.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils.generic import TransformersKwargs, can_return_tuple

from .configuration_minbert import MinBertConfig
from .embedding_minbert import MinBertEmbeddingMixin, pool_outputs, reads
from .head_minbert import MinBertTaskHead
from .inference_minbert import Row, check_rows, stream
from .losses_minbert import sequence_keys
from .modeling_minbert import MinBertForMaskedLM, MinBertModel, MinBertPreTrainedModel
from .pipeline_minbert import MinBertMultiTaskPipeline
from .pretraining_minbert import MinBertForPreTrainingOutput, MinBertPreTrainingHeads, pretrain
from .task_minbert import PRETRAINING, MinBertTask

# What the encoder takes first: ids, mask, segments, positions, embeddings.
Inputs = tuple[Tensor | None, ...]
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")


class MinBertForMultiTask(MinBertEmbeddingMixin, MinBertPreTrainedModel):
    """One encoder with any number of named heads, described in `config.tasks`.

    A step computes one task. Sentences of a separate pair come as (B, 2, L), as the choices of a
    multiple-choice model do, and go through the encoder in one call; those of a contrastive task as
    (B, S, L), S its `num_sentences`.

    `from_pretrained(folder_of_a_bert, tasks={...})` puts new heads on a checkpoint;
    `from_pretrained(folder)` restores a saved model with its tasks, label names and score ranges.
    Tasks of pre-training have BERT's heads under BERT's names, so that they are loaded with a
    checkpoint of BERT, and `AutoModelForMaskedLM` finds them in a saved folder.
    """

    _auto_class = "AutoModelForSequenceClassification"
    _pipelines = {"minbert-multi-task": MinBertMultiTaskPipeline}
    accepts_loss_kwargs = False

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__(config)
        config.describe_default_task()
        self.bert = MinBertModel(config)
        # Sorted, as the file of the configuration is: a new model and a loaded one have their
        # parameters, and thus the state of an optimizer, in the same order.
        self._tasks = {name: config.task(name) for name in sorted(config.tasks or {})}
        self.heads = nn.ModuleDict(
            {
                name: MinBertTaskHead(config, task)
                for name, task in self._tasks.items()
                if not task.is_pretraining
            }
        )
        masked_lm = any(task.predicts_words for task in self._tasks.values())
        next_sentence = any(task.compares_segments for task in self._tasks.values())
        if masked_lm or next_sentence:
            self.cls = MinBertPreTrainingHeads(
                config, masked_lm=masked_lm, next_sentence=next_sentence
            )
        if masked_lm:
            self._tied_weights_keys = MinBertForMaskedLM._tied_weights_keys
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        task: str | None = None,
        next_sentence_label: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput | MinBertForPreTrainingOutput:
        """Compute one task.

        Ids and masks are (B, L), or (B, 2, L) for a `task` with separate pairs (their hidden states
        come as 2B sequences), (B, S, L) for a contrastive one. A packed batch has B sequences, or
        2B, those of a pair together. `labels` (B,) are class ids, 0/1 for a paraphrase, or
        similarity scores within their range. Without the name of a `task` it is
        `config.default_task`.

        A contrastive task takes no labels and always has its `loss`; rows that begin with padding
        fill the batch up. In training a sentence that is alone in its row is encoded twice. Losses
        that compare rows see those of this process alone, and tell equal texts by their ids.

        A masked_lm and a pretraining task take `labels` as `MinBertForMaskedLM` does, one a token;
        a next_sentence task those of `MinBertForNSP`, which for pretraining are the
        `next_sentence_label`.

        Returns:
            `logits` (B, K), K = 1 for paraphrase and similarity, and, with labels, the mean `loss`
            over the rows. Of a contrastive task they are vectors of length 1, (B, S, D). Of a task
            of pre-training what `MinBertForPreTraining` returns, as far as the task has it.

        Raises:
            ValueError: If there is no such task, or a shape or a label does not fit it.
        """
        name = task or str(self.config.default_task)
        spec = self._tasks.get(name) or self.config.task(name)  # names the known tasks
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        _check_inputs(inputs, name, spec, kwargs.get("cu_seq_lens_q"))
        if next_sentence_label is not None and spec.problem_type != "pretraining":
            raise ValueError(
                f"task {name!r} is a {spec.problem_type}: leave next_sentence_label out, it is for "
                "a pretraining task"
            )
        if spec.is_pretraining:
            return self._pretrain(name, inputs, labels, next_sentence_label, kwargs)
        return self._score(name, inputs, labels, kwargs)

    def _score(
        self, name: str, inputs: Inputs, labels: Tensor | None, kwargs: dict[str, Any]
    ) -> SequenceClassifierOutput:
        """Compute a task that has a head of its own."""
        head = self._head(name)
        task, offsets = head.task, kwargs.get("cu_seq_lens_q")
        if task.problem_type == "contrastive":
            if labels is not None:
                raise ValueError(
                    f"task {name!r} is contrastive and learns without labels: leave them out"
                )
            labels = _mark_rows(inputs, offsets, task.num_sequences, self.config.pad_token_id)
        outputs, pooled = self._pool(head, inputs, kwargs, task.num_sequences)
        vectors = head.embed(pooled)
        scores = head.score(vectors)
        keys = loss = None
        if labels is not None:
            if task.loss == "multiple_negatives_ranking":
                keys = _text_keys(inputs, offsets, task.num_sequences)
            loss = head.loss(vectors, scores, labels, keys)
        return SequenceClassifierOutput(
            loss, head.to_logits(scores), outputs.hidden_states, outputs.attentions
        )

    def _pool(
        self, head: MinBertTaskHead, inputs: Inputs, kwargs: dict[str, Any], sentences: int | None
    ) -> tuple[Any, Tensor]:
        """Encode a batch, and make a vector of each sequence.

        Args:
            head: Of the task.
            inputs: What the encoder takes first.
            kwargs: What else it takes.
            sentences: Sequences of a row, which are told apart; None for one that is not.

        Returns:
            What the encoder gave, and (B, S, D), or (B, D). A sentence that is alone in its row is
            encoded twice in training, with other dropout, (B, 2, D).
        """
        pooling, twice = head.task.pooling, sentences == 1 and self.training
        if sentences is not None and kwargs.get("cu_seq_lens_q") is None:
            inputs = tuple(None if x is None else x.flatten(0, 1) for x in inputs)
        if twice:
            inputs, kwargs = _repeat(inputs, kwargs)
        layers = head.task.pooling_layer % (self.config.num_hidden_layers + 1)
        outputs = self.bert(
            *inputs, return_dict=True, read=reads(pooling), num_layers=layers, **kwargs
        )
        pooled = pool_outputs(outputs, inputs[1], pooling)
        if twice:
            return outputs, pooled.unflatten(0, (2, -1)).transpose(0, 1)
        return outputs, pooled if sentences is None else pooled.unflatten(0, (-1, sentences))

    def _pretrain(
        self,
        name: str,
        inputs: Inputs,
        labels: Tensor | None,
        next_sentence_label: Tensor | None,
        kwargs: dict[str, Any],
    ) -> MinBertForPreTrainingOutput:
        """Compute a task of pre-training."""
        spec = self._tasks[name]
        if not spec.predicts_words:
            labels, next_sentence_label = None, labels
        ids = _ids(inputs)
        if labels is not None and ids is not None and labels.shape != ids.shape:
            raise ValueError(
                f"labels of shape {tuple(labels.shape)}, but task {name!r} takes one a token, "
                f"{tuple(ids.shape)}"
            )
        return pretrain(
            self,
            inputs,
            labels,
            next_sentence_label,
            kwargs,
            masked_lm=spec.predicts_words,
            next_sentence=spec.compares_segments,
        )

    def _head(self, task: str) -> MinBertTaskHead:
        """Find the head of a task.

        Raises:
            ValueError: If there is no such task, or it is one of pre-training.
        """
        if task not in self.heads:
            spec = self.config.task(task)  # names the known tasks
            raise ValueError(
                f"task {task!r} is a {spec.problem_type}, which says nothing of whole sentences: "
                f"save the model and load its folder with {PRETRAINING[spec.problem_type]}"
            )
        head: Any = self.heads[task]
        return head

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, MinBertTaskHead) and module.class_weights is not None:
            init.copy_(module.class_weights, module.make_class_weights())

    def save_as_bert(
        self, save_directory: str | os.PathLike[str], *, num_layers: int | None = None
    ) -> None:
        """Save the encoder as a plain `bert`; BERT has no class for the heads.

        With those of pre-training load the saved folder as `MinBertForPreTraining`, and save that.

        Args:
            save_directory: The folder; made if it is not there. The tokenizer is not written.
            num_layers: How many layers are saved, from below; None for all.
        """
        self.bert.save_as_bert(save_directory, num_layers=num_layers)

    def decode(self, task: str, logits: Tensor) -> Tensor:
        """Turn logits of a task into predictions.

        Args:
            task: Name of the task.
            logits: (B, K); of a contrastive task (B, S, D).

        Returns:
            (B,): class ids, 0/1 for a paraphrase, scores within the range of the task, or of a
            contrastive task the cosines of the first two sentences.

        Raises:
            ValueError: If there is no such task, or it is one of pre-training.
        """
        return self._head(task).decode(torch.as_tensor(logits))

    def divergence(self, task: str, logits: Tensor, other: Tensor) -> Tensor:
        """Tell how far two predictions of the same rows are apart, as R-Drop and SMART need it.

        With the losses cross_entropy and bce it is the symmetric Kullback-Leibler divergence,
        KL(P || Q) + KL(Q || P), in nats: of the classes, or of the two outcomes that a single logit
        decides between. With other losses it is the squared difference of what they read: scores,
        cosines, or the vectors of a contrastive task.

        Args:
            task: Name of the task.
            logits: Of one pass, (B, K), or of a contrastive task (B, S, D).
            other: Of another pass over the same rows.

        Returns:
            The mean over the rows, in float32: 0 or more, and 0 if both are equal. It has gradients
            with respect to both.

        Raises:
            ValueError: If there is no such task, it is one of pre-training, or the shapes differ.

        Source: Wu et al. 2021, section 2.1 (where it is half of this sum); Jiang et al. 2020,
        section 3.1.
        """
        return self._head(task).divergence(logits, other)

    def predict(
        self,
        task: str,
        sentences: Sequence[str] | Sequence[tuple[str, str]],
        *,
        top_k: int | None = None,
        max_tokens_per_batch: int | None = None,
        show_progress: bool | None = None,
    ) -> list[Any]:
        """Predict a task for sentences or pairs of sentences.

        Args:
            task: Name of the task.
            sentences: Sentences, or pairs (first, second) for a pair task and a contrastive one.
            top_k: How many labels of a row, the most probable first; None for the predicted one.
            max_tokens_per_batch: Tokens that are computed together; None for what suits the device.
            show_progress: Whether to show a progress bar; None shows it for long lists.

        Returns:
            One dictionary a row, in the order given: `label` and `score` (its probability in
            [0, 1]), or only `score`: within the range of the task for a similarity, the cosine for
            a contrastive task. With `top_k` a list of at most so many of them a row.

        Raises:
            TypeError: If `sentences` is one string.
            ValueError: If there is no such task, it is one of pre-training, a row has not as many
                sentences as it reads, or `top_k` is below 1.
        """
        spec = self._head(task).task
        rows = list(check_rows(sentences, task, 1 if spec.pair_encoding is None else 2))
        options = {"max_tokens": max_tokens_per_batch, "show_progress": show_progress}
        return list(chain.from_iterable(self._predict(task, rows, top_k, **options)))

    def predict_stream(
        self,
        task: str,
        sentences: Iterable[str] | Iterable[tuple[str, str]],
        *,
        top_k: int | None = None,
        max_tokens_per_batch: int | None = None,
        show_progress: bool | None = None,
    ) -> Iterator[Any]:
        """Predict a task for more rows than fit into memory; see `predict`.

        Args:
            task: Name of the task.
            sentences: Any iterable; it is read some thousand rows ahead of what is taken.
            top_k: As in `predict`.
            max_tokens_per_batch: Tokens that are computed together; None for what suits the device.
            show_progress: Whether to show a progress bar; None shows it unless the list is short.

        Yields:
            What `predict` gives for a row, in the order given.

        Raises:
            TypeError: If `sentences` is one string.
            ValueError: As `predict` does.
        """
        spec = self._head(task).task
        rows = check_rows(sentences, task, 1 if spec.pair_encoding is None else 2)
        options = {"max_tokens": max_tokens_per_batch, "show_progress": show_progress}
        return chain.from_iterable(self._predict(task, rows, top_k, **options))

    def _predict(
        self, task: str, rows: Iterable[Row], top_k: int | None, **options: Any
    ) -> Iterator[list[Any]]:
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k={top_k} must be 1 or more")
        spec = self._head(task).task

        def compute(batch: dict[str, Any]) -> Tensor:
            if spec.problem_type != "contrastive":
                return self(**batch, task=task).logits
            # a pair, however many sentences a row has in training
            inputs = tuple(batch.pop(name, None) for name in INPUTS)
            head = self._head(task)
            _, pooled = self._pool(head, inputs, batch, 2)
            return head.decode(head(pooled)).unsqueeze(-1)

        separate = spec.pair_encoding == "separate"
        encode = self._tokenize(separate=separate, truncation=spec.truncation)
        for logits in stream(self, rows, encode, compute, **options):
            yield self._describe(task, spec, logits, top_k)

    def _describe(
        self, task: str, spec: MinBertTask, logits: Tensor, top_k: int | None
    ) -> list[Any]:
        """Say what logits (n, K) mean, a dictionary a row, or with `top_k` a list of them."""
        if spec.problem_type in ("contrastive", "similarity"):
            is_cosine = spec.problem_type == "contrastive"  # which is decoded already
            scores = logits.squeeze(-1) if is_cosine else self.decode(task, logits)
            rows = [{"score": score} for score in scores.tolist()]
            return rows if top_k is None else [[row] for row in rows]
        if spec.problem_type == "paraphrase":
            probabilities = torch.cat([torch.sigmoid(-logits), torch.sigmoid(logits)], dim=-1)
        else:
            probabilities = logits.softmax(dim=-1)
        if top_k is None:
            best = self.decode(task, logits).unsqueeze(-1)
        else:
            best = probabilities.topk(min(top_k, probabilities.shape[-1])).indices
        names = spec.labels or []
        described = [
            [{"label": names[index], "score": row[index]} for index in indices]
            for indices, row in zip(best.tolist(), probabilities.tolist(), strict=True)
        ]
        return [row[0] for row in described] if top_k is None else described


def _ids(inputs: Inputs) -> Tensor | None:
    """Return the ids, or what has their shape."""
    return inputs[0] if inputs[4] is None else inputs[4][..., 0]


def _check_inputs(inputs: Inputs, name: str, task: MinBertTask, offsets: Tensor | None) -> None:
    """Check that a task gets as many sequences a row as it takes."""
    count = task.num_sequences
    if offsets is not None:
        if count is not None and (len(offsets) - 1) % count:
            words = {2: "two", 3: "three"}
            raise ValueError(
                f"task {name!r} takes {words[count]} sequences a row, got {len(offsets) - 1} in all"
            )
        return
    ids = _ids(inputs)
    wanted = () if count is None else (count,)
    if ids is not None and (ids.dim() != 2 + len(wanted) or ids.shape[1:-1] != wanted):
        expected = ", ".join(map(str, ("batch", *wanted, "length")))
        raise ValueError(f"task {name!r} takes input of shape ({expected}), got {tuple(ids.shape)}")


def _mark_rows(
    inputs: Inputs, offsets: Tensor | None, sentences: int | None, padding: int | None
) -> Tensor:
    """Label the rows of a contrastive task: 1, and -100 for those that only fill a batch up."""
    ids = _ids(inputs)
    if ids is None:
        raise ValueError("pass exactly one of input_ids and inputs_embeds")
    first = ids[..., 0].flatten() if offsets is None else ids[0, offsets[:-1].long()]
    labels = torch.ones_like(first[::sentences], dtype=torch.long)
    if inputs[0] is None or padding is None:
        return labels
    return labels.masked_fill(first[::sentences] == padding, -100)


def _text_keys(inputs: Inputs, offsets: Tensor | None, sentences: int | None) -> Tensor | None:
    """Make numbers that tell the texts of a batch apart, (B, S); None if there are no ids."""
    ids, mask = (None if x is None else x.flatten(0, -2) for x in inputs[:2])
    if ids is None:
        return None
    return sequence_keys(ids, mask, offsets).unflatten(0, (-1, sentences or 1))


def _repeat(inputs: Inputs, kwargs: dict[str, Any]) -> tuple[Inputs, dict[str, Any]]:
    """Put all sequences of a batch, padded or packed, once more behind themselves."""
    offsets = kwargs.get("cu_seq_lens_q")
    dim = 0 if offsets is None else 1
    inputs = tuple(None if x is None else torch.cat([x, x], dim=dim) for x in inputs)
    if offsets is not None:
        kwargs = kwargs | {"cu_seq_lens_q": torch.cat([offsets, offsets[1:] + offsets[-1]])}
    return inputs, kwargs


__all__ = ["MinBertForMultiTask"]
