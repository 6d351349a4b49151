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
from dataclasses import asdict
from itertools import chain
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import (
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import TransformersKwargs, can_return_tuple

from .answers_minbert import AnswerOptions, MinBertAnswering
from .configuration_minbert import MinBertConfig
from .embedding_minbert import MinBertEmbeddingMixin, pool_outputs, reads
from .head_minbert import MinBertTaskHead
from .inference_minbert import Row, check_rows, stream
from .inputs_minbert import (
    INPUTS,
    Inputs,
    check_inputs,
    check_owners,
    check_token_labels,
    mark_rows,
    repeat,
    text_keys,
)
from .modeling_minbert import MinBertForMaskedLM, MinBertModel, MinBertPreTrainedModel
from .pipeline_minbert import MinBertMultiTaskPipeline
from .pretraining_minbert import MinBertForPreTrainingOutput, MinBertPreTrainingHeads, pretrain
from .tagging_minbert import predict_tags
from .task_minbert import PRETRAINING, MinBertTask
from .tokens_minbert import MinBertTokenHead, find_answers, label_tokens

Output = (
    SequenceClassifierOutput
    | TokenClassifierOutput
    | QuestionAnsweringModelOutput
    | MinBertForPreTrainingOutput
)


class MinBertForMultiTask(MinBertAnswering, MinBertEmbeddingMixin, MinBertPreTrainedModel):
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
                name: (MinBertTokenHead if task.reads_tokens else MinBertTaskHead)(config, task)
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
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> Output:
        """Compute one task.

        Ids and masks are (B, L), or (B, 2, L) for a `task` with separate pairs (their hidden states
        come as 2B sequences), (B, S, L) for a contrastive one. A packed batch has B sequences, or
        2B, those of a pair together. `labels` (B,) are class ids, 0/1 for a paraphrase, or
        similarity scores within their range. Without the name of a `task` it is
        `config.default_task`.

        A contrastive task takes no labels and always has its `loss`; rows of padding alone (packed,
        that begin with it) fill the batch up. In training a sentence that is alone in its row is
        encoded twice. Losses that compare rows tell equal texts by their ids, and see the rows of
        this process alone, or of all (see `gather_rows`).

        A token_classification task takes one label a token, as `MinBertForTokenClassification`, and
        a question_answering task `start_positions` and `end_positions`, as
        `MinBertForQuestionAnswering`, or both as `labels` (B, 2).

        A masked_lm and a pretraining task take `labels` as `MinBertForMaskedLM` does, one a token;
        a next_sentence task those of `MinBertForNSP`, which for pretraining are the keyword
        `next_sentence_label`.

        Returns:
            `logits` (B, K), K = 1 for paraphrase and similarity, and, with labels, the mean `loss`
            over the rows. Of a contrastive task they are vectors of length 1, (B, S, D); of a
            token_classification task those of every token, (B, L, K), (1, T, K) of a packed batch.
            A question_answering task has `start_logits` and `end_logits`, (B, L) or (N, longest).
            Of a task of pre-training what `MinBertForPreTraining` returns, as far as it has it.

        Raises:
            ValueError: If there is no such task, or a shape or a label does not fit it.
        """
        name = task or str(self.config.default_task)
        spec = self._tasks.get(name) or self.config.task(name)  # names the known tasks
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        check_inputs(inputs, name, spec, kwargs.get("cu_seq_lens_q"))
        # no argument by name: the Trainer would wait for every one that is called a label
        next_sentence_label: Any = kwargs.pop("next_sentence_label", None)
        own = {
            "next_sentence_label": next_sentence_label,
            "start_positions": start_positions,
            "end_positions": end_positions,
        }
        check_owners(name, spec, own)
        if spec.is_pretraining:
            return self._pretrain(name, inputs, labels, next_sentence_label, kwargs)
        if spec.problem_type == "question_answering":
            return self._answer(name, inputs, labels, (start_positions, end_positions), kwargs)
        if spec.problem_type == "token_classification":
            return self._label(name, inputs, labels, kwargs)
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
            labels = mark_rows(inputs, offsets, task.num_sequences, self.config.pad_token_id)
        outputs, pooled = self._pool(head, inputs, kwargs, task.num_sequences)
        vectors = head.embed(pooled)
        scores = head.score(vectors)
        keys = loss = None
        if labels is not None:
            if task.loss == "multiple_negatives_ranking":
                keys = text_keys(inputs, offsets, task.num_sequences)
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
            inputs, kwargs = repeat(inputs, kwargs)
        layers = self._count_layers(head.task)
        outputs = self.bert(
            *inputs, return_dict=True, read=reads(pooling), num_layers=layers, **kwargs
        )
        pooled = pool_outputs(outputs, inputs[1], pooling)
        if twice:
            return outputs, pooled.unflatten(0, (2, -1)).transpose(0, 1)
        return outputs, pooled if sentences is None else pooled.unflatten(0, (-1, sentences))

    def _label(
        self, name: str, inputs: Inputs, labels: Tensor | None, kwargs: dict[str, Any]
    ) -> TokenClassifierOutput:
        """Compute a task that labels every token."""
        check_token_labels(name, inputs, labels)
        kwargs.pop("label_positions", None)  # every token is scored, those without a label, too
        kwargs["num_layers"] = self._count_layers(self._tasks[name])
        return label_tokens(self, self.heads[name], inputs, labels, kwargs)

    def _answer(
        self,
        name: str,
        inputs: Inputs,
        labels: Tensor | None,
        positions: tuple[Tensor | None, Tensor | None],
        kwargs: dict[str, Any],
    ) -> QuestionAnsweringModelOutput:
        """Compute a task that finds answers."""
        start_positions, end_positions = positions
        if labels is not None:
            if labels.dim() != 2 or labels.shape[-1] != 2:
                raise ValueError(
                    f"labels of shape {tuple(labels.shape)}, but task {name!r} takes (batch, 2): "
                    "the first and the last token of each answer"
                )
            start_positions, end_positions = labels.unbind(dim=-1)
        kwargs["num_layers"] = self._count_layers(self._tasks[name])
        return find_answers(self, self.heads[name], inputs, start_positions, end_positions, kwargs)

    def _count_layers(self, task: MinBertTask) -> int:
        """Count the layers that a task reads."""
        return task.pooling_layer % (self.config.num_hidden_layers + 1)

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
        check_token_labels(name, inputs, labels)
        return pretrain(
            self,
            inputs,
            labels,
            next_sentence_label,
            kwargs,
            masked_lm=spec.predicts_words,
            next_sentence=spec.compares_segments,
        )

    def _head(self, task: str) -> Any:
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
        return self.heads[task]

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
            logits: (B, K); of a contrastive task (B, S, D), of a token_classification (..., K).

        Returns:
            (B,), of a token_classification (...): class ids, 0/1 for a paraphrase, scores within
            the range of the task, or of a contrastive task the cosines of the first two sentences.

        Raises:
            ValueError: If there is no such task, or it is one of pre-training, or finds answers.
        """
        return self._head(task).decode(torch.as_tensor(logits))

    def fit_threshold(self, task: str, logits: Tensor, labels: Tensor) -> float:
        """Choose above which cosine a pair counts as a paraphrase: where most rows are right.

        The configuration is told, so that a saved model knows it. A ranking loss orders cosines
        and teaches no border; `MultiTaskTrainer` calls this with training rows.

        Args:
            task: Name of a paraphrase task with head cosine.
            logits: What the model says of labelled pairs in evaluation mode, (B, 1). What is not
                finite does not count; without anything that is, the threshold stays.
            labels: 1 for a paraphrase, 0 for none, -100 for a row that does not count, (B,).

        Returns:
            The cosine, in [-1, 1].

        Raises:
            ValueError: If the task compares no cosine with a threshold, or no row has a label.
        """
        head = self._head(task)
        spec = head.task
        if spec.problem_type != "paraphrase" or spec.head != "cosine":
            raise ValueError(
                f"task {task!r} is a {spec.problem_type} with head {spec.head!r}; only a "
                "paraphrase with head 'cosine' has a threshold"
            )
        value: float = head.fit_threshold(torch.as_tensor(logits), torch.as_tensor(labels))
        self.config.tasks = {**(self.config.tasks or {}), task: asdict(spec)}
        return value

    def gather_rows(self) -> None:
        """Let losses that compare rows see those of all processes in training.

        So they are those of one process with the whole batch; gradients are, too, if their mean
        over the processes is taken, as `DistributedDataParallel` does. From then on all processes
        have to compute the same tasks in the same order. `MultiTaskTrainer` calls it.
        """
        for head in self.heads.values():
            if isinstance(head, MinBertTaskHead):
                head.gathers = True

    def divergence(
        self, task: str, logits: Tensor, other: Tensor, labels: Tensor | None = None
    ) -> Tensor:
        """Tell how far two predictions of the same rows are apart, as R-Drop and SMART need it.

        With the losses cross_entropy and bce it is the symmetric Kullback-Leibler divergence,
        KL(P || Q) + KL(Q || P), in nats: of the classes, or of the two outcomes that a single logit
        decides between. With other losses it is the squared difference of what they read: scores,
        cosines, or the vectors of a contrastive task.

        Args:
            task: Name of the task.
            logits: Of one pass, (B, K), of a contrastive task (B, S, D), of a token_classification
                (B, L, K).
            other: Of another pass over the same rows.
            labels: Of a token_classification, (B, L): tokens with -100 do not count; None lets all
                of them count, paddings too.

        Returns:
            The mean over the rows, or tokens, in float32: 0 or more, and 0 if both are equal. It
            has gradients with respect to both.

        Raises:
            ValueError: If there is no such task, it is one of pre-training, or finds answers, or
                the shapes differ.

        Source: Wu et al. 2021, section 2.1 (where it is half of this sum); Jiang et al. 2020,
        section 3.1.
        """
        head = self._head(task)
        if head.task.reads_tokens:
            return head.divergence(logits, other, labels)
        return head.divergence(logits, other)

    def predict(
        self,
        task: str,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        *,
        top_k: int | None = None,
        max_tokens_per_batch: int | None = None,
        show_progress: bool | None = None,
    ) -> list[Any]:
        """Predict a task for sentences or pairs of sentences.

        Args:
            task: Name of the task.
            sentences: Sentences, or pairs (first, second) for a pair task and a contrastive one.
                For a token_classification texts of any length, or lists of words.
            top_k: How many labels or answers of a row, the most probable first; None for the
                predicted one. Not for a token_classification.
            max_tokens_per_batch: Tokens that are computed together; None for what suits the device.
            show_progress: Whether to show a progress bar; None shows it for long lists.

        Returns:
            One dictionary a row, in the order given: `label` and `score` (its probability in
            [0, 1]), or only `score`: within the range of the task for a similarity, the cosine for
            a contrastive task. With `top_k` a list of at most so many of them a row. Of a
            token_classification `words`, `tags`, `scores`, and `entities` with `label`, `text`,
            `start`, `end` and `score` if the tags mark any. Of a question and a text of any length
            `answer`, empty for none, its `score`, and `start` and `end`, its place in the text in
            characters; see `answer`.

        Raises:
            TypeError: If `sentences` is one string.
            ValueError: If there is no such task, it is one of pre-training, a row has not as many
                sentences as it reads, or `top_k` is below 1.
        """
        options = {"max_tokens": max_tokens_per_batch, "show_progress": show_progress}
        return list(self._predict_rows(task, sentences, top_k, **options))

    def predict_stream(
        self,
        task: str,
        sentences: Iterable[str] | Iterable[Sequence[str]],
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
        options = {"max_tokens": max_tokens_per_batch, "show_progress": show_progress}
        return self._predict_rows(task, sentences, top_k, **options)

    def _predict_rows(
        self, task: str, sentences: Iterable[Any], top_k: int | None, **options: Any
    ) -> Iterator[Any]:
        """Predict rows of any task."""
        spec = self._head(task).task
        if spec.problem_type == "token_classification":
            if isinstance(sentences, str):
                raise TypeError(f"{task}: pass a list of texts, not one string")
            if top_k is not None:
                raise ValueError(
                    f"task {task!r} is a token_classification, with one tag a word: leave top_k out"
                )
            return predict_tags(self, task, sentences, **options)
        rows: Iterable[Row] = check_rows(sentences, task, 1 if spec.pair_encoding is None else 2)
        rows = list(rows) if isinstance(sentences, Sequence) else rows
        return chain.from_iterable(self._predict(task, rows, top_k, **options))

    def _predict(
        self, task: str, rows: Iterable[Row], top_k: int | None, **options: Any
    ) -> Iterator[list[Any]]:
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k={top_k} must be 1 or more")
        spec = self._head(task).task
        if spec.problem_type == "question_answering":
            positions = self.config.max_position_embeddings
            search = AnswerOptions.from_task(spec, positions, top_k=top_k)
            answers = self._answer_rows(rows, task, search, **options)
            yield from ([found[0] if top_k is None else found] for found in answers)
            return

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

    def _answering_task(self, task: str | None) -> tuple[str, MinBertTask]:
        """Find the task that answers questions: the one that is named, or the first by name."""
        names = [n for n, x in self._tasks.items() if x.problem_type == "question_answering"]
        name = task or next(iter(names), None)
        if name is None or (spec := self.config.task(name)).problem_type != "question_answering":
            known = ", ".join(names) or "none"
            raise ValueError(f"task {name!r} answers no questions; those that do: {known}")
        return name, spec

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


__all__ = ["MinBertForMultiTask"]
