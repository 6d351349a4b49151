# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""`MinBertForMultiTask`: one encoder with any number of named heads.

Shapes: B rows, k of them with a label of a task.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Self, Unpack

import torch
from torch import Tensor, nn
from transformers.utils import logging
from transformers.utils.generic import ModelOutput, TransformersKwargs, can_return_tuple

from .configuration_minbert import MinBertConfig
from .embedding import MinBertEmbeddingMixin
from .heads import Inputs, MinBertHead, MinBertHeads, TaskBatch, check_inputs, check_labels, ids_of
from .inference import HUB_KEYS, PooledPredictor
from .modeling_minbert import MinBertForMaskedLM, MinBertModel, MinBertPreTrainedModel
from .packing import Options, States
from .rows import Batching, MinBertPredicting, check_container, warn_once
from .tasks import load_types

logger = logging.get_logger(__name__)


class MinBertForMultiTask(MinBertPredicting, MinBertEmbeddingMixin, MinBertPreTrainedModel):
    """One encoder with any number of named heads, described in `config.tasks`.

    `from_pretrained(folder_of_a_bert, tasks={...})` puts new heads on a checkpoint;
    `from_pretrained(folder)` restores a saved model with its tasks, label names and score ranges,
    and `from_pretrained(folder, tasks={**tasks_of_the_folder, ...})` gives it more.
    The head of a stock model, such as a sentiment model of the Hub, or of a minBERT model with one
    head, is that of a task with its labels, if the task has a linear head on the pooler.
    Tasks of pre-training have BERT's heads under BERT's names: they load from a checkpoint of BERT,
    and `AutoModelForMaskedLM` loads them from a saved folder.
    """

    _auto_class = "AutoModelForSequenceClassification"
    accepts_loss_kwargs = False

    def __init__(self, config: MinBertConfig) -> None:
        super().__init__(config)
        config.describe_default_task()
        self._described = config.default_task
        self.bert = MinBertModel(config)
        # Sorted, as in the file of the configuration; see `MinBertHeads`.
        self._tasks = {name: config.task(name) for name in sorted(config.tasks or {})}
        heads = {
            name: load_types(spec.problem_type)[spec.problem_type][1](config, spec)
            for name, spec in self._tasks.items()
            if not spec.is_pretraining
        }
        self.heads = MinBertHeads(heads)
        masked_lm = any(spec.predicts_masked_tokens for spec in self._tasks.values())
        next_sentence = any(spec.predicts_next_sentence for spec in self._tasks.values())
        if masked_lm:
            self._tied_weights_keys = MinBertForMaskedLM._tied_weights_keys
        if masked_lm or next_sentence:
            from .pretraining import MinBertPreTrainingHeads

            self.cls = MinBertPreTrainingHeads(
                config, masked_lm=masked_lm, next_sentence=next_sentence
            )
        self.post_init()

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Self:
        """Load a checkpoint; a stock classifier becomes the head of the task that it fits."""
        for name, field in (("problem_type", "problem_type"), ("classifier_dropout", "dropout")):
            if kwargs.get(name) is not None:
                raise ValueError(
                    f"{name}={kwargs[name]!r} has no effect, since every task has its own: leave "
                    f"it out, or set it for a task, as in tasks={{name: {{..., {field!r}: ...}}}}"
                )
        path = pretrained_model_name_or_path
        tasks = kwargs.get("tasks") or getattr(kwargs.get("config"), "tasks", None)
        if path is not None and tasks:
            from .families import find_stock_head

            where = {name: kwargs[name] for name in HUB_KEYS if name in kwargs}
            if renames := find_stock_head(cls.config_class, path, tasks, where):
                kwargs["key_mapping"] = {**(kwargs.get("key_mapping") or {}), **renames}
        return super().from_pretrained(path, *args, **kwargs)

    @property
    def uses_pooler(self) -> bool:
        """Whether a task uses BERT's pooler."""
        return any(task.uses_pooler or task.predicts_next_sentence for task in self._tasks.values())

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        task: str | Sequence[str] | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> ModelOutput:
        """Compute one task, or several tasks in one pass of the encoder.

        Args:
            input_ids: (B, L), or (B, S, L) for a task of S sequences a row: separate pairs and
                contrastive texts. A packed batch has all of them, those of a row adjacent. For a
                task with `truncation` `windows` these are the windows of all texts, (N, L), with
                `num_windows` of each text, (B,) or (B, 2).
            attention_mask: As the ids, like all further inputs.
            token_type_ids: See `MinBertModel`.
            position_ids: See `MinBertModel`.
            inputs_embeds: See `MinBertModel`.
            labels: (B,): class ids, 0/1 for a paraphrase, scores within their range, numbers in the
                units of the data; (B, K) for several labels or targets; (B, L) for tokens. -100
                does not count. A contrastive task takes none and always has a loss; rows of padding
                alone fill the batch, and a single sentence is encoded twice in training. Tasks of
                pre-training take those of their models.
            task: Name of the task; None for `config.default_task`. With a list of names the result
                is a dictionary of the outputs by task, without a loss; a contrastive task takes
                pairs then, as in `predict`.
            start_positions: Of a question_answering task, (B,), or both as `labels` (B, 2).
            end_positions: As `start_positions`.
            use_cache: What the pipelines `text-classification` and `zero-shot-classification` of
                transformers, and nobody else, pass to a model: the logits of the default task are
                then calibrated, and all but a classification is refused.
            **kwargs: As for `MinBertModel`, and `next_sentence_label` for a pretraining task.

        Returns:
            `logits` (B, K), K = 1 for paraphrase and similarity, and, with labels, the mean `loss`
            over the rows. Those of a contrastive task are vectors of length 1, (B, S, D); of a
            token_classification task (B, L, K), (1, T, K) of a packed batch. A question_answering
            task has `start_logits` and `end_logits`, (B, L) or (N, longest). A task of pre-training
            has its part of the output of `MinBertForPreTraining`.

        Raises:
            ValueError: If there is no such task, or a shape or a label does not fit it.
        """
        inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        options: Options = {**kwargs}
        targets: dict[str, Tensor | None] = {
            # not a named argument: the Trainer would require every one that is called a label
            "next_sentence_label": options.pop("next_sentence_label", None),
            "start_positions": start_positions,
            "end_positions": end_positions,
        }
        if task is not None and not isinstance(task, str):
            if any(given is not None for given in (labels, *targets.values())):
                raise ValueError(f"labels are of one task, but task={task!r} names several")
            return self.compute_several(task, inputs, options, {})
        if task is None and self.config.default_task != self._described:
            self.config.describe_default_task()  # whose labels pipelines read
            self._described = self.config.default_task
        name = task or str(self.config.default_task)
        known = self.heads.get(name) or self._tasks.get(name)
        spec = getattr(known, "task", known) or self.config.task(name)  # refuses unknown tasks
        is_in_pipeline = use_cache is not None and task is None
        if is_in_pipeline:
            check_row_of_pipeline(name, spec, inputs, self.config)
        batch = TaskBatch(name, inputs, options, spec.num_sequences, labels, targets=targets)
        # not a named argument, which exporters and pipelines would take for a necessary one
        batch.num_windows = options.pop("num_windows", None)
        check_inputs(batch, spec)
        check_labels(batch, spec)
        head = self._find_head(name)
        head.prepare(batch)
        outputs: Any = self._run_head(batch)
        if is_in_pipeline:
            outputs.logits = outputs.logits / head.temperature
        return outputs

    def _run_head(self, batch: TaskBatch, known: dict[States, Any] | None = None) -> ModelOutput:
        """Run the encoder and the head of a batch; without targets there is no loss.

        The `known` outputs of the encoder are used, and added to, by the states that are read.
        """
        head = self._find_head(batch.name)
        batch = head.arrange(batch)
        batch.read = head.read(batch)
        layers = head.task.count_layers(self.config.num_hidden_layers)
        outputs = None if known is None else known.get((batch.read, layers))
        if outputs is None:
            outputs = self.bert(
                *batch.inputs, return_dict=True, read=batch.read, num_layers=layers, **batch.options
            )
        if known is not None:
            known[batch.read, layers] = outputs
        return head(outputs, batch)

    def compute_several(
        self, names: Sequence[str], inputs: Inputs, options: Options, known: dict[States, Any]
    ) -> Any:
        """Run the heads of several tasks, to predict: outputs by name.

        The encoder runs once for all that read the same states, and not for `known` ones.
        """
        if not names:
            raise ValueError("task is an empty list: name at least one task")
        specs = {name: self._tasks.get(name) or self.config.task(name) for name in names}
        num_windows = options.pop("num_windows", None)
        outputs = {}
        for name, spec in specs.items():
            count = 2 if spec.is_separate else None  # a contrastive task predicts pairs
            batch = TaskBatch(name, inputs, {**options}, count, num_windows=num_windows)
            check_inputs(batch, spec)
            outputs[name] = self._run_head(batch, known)
        return outputs

    def _find_head(self, name: str) -> Any:
        head = self.heads.get(name)
        if head is not None:
            return head
        from .pretraining import SharedHead

        return SharedHead(self, self._tasks[name])

    def _head(self, task: str) -> Any:
        """Return the head of a task that predicts texts."""
        head = self.heads.get(task)
        if head is None:
            spec: Any = self.config.task(task)  # refuses unknown tasks
            raise ValueError(
                f"task {task!r} is {spec.kind}, which predicts nothing about whole "
                f"texts: save the model and load its folder with {spec.auto_class}"
            )
        return head

    def _predictor(self, task: str, top_k: int | None) -> Any:
        self.check_tokenizer()
        return self._head(task).predictor(self, task, top_k)

    def explain(
        self,
        task: str,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        *,
        label: str | None = None,
    ) -> list[dict[str, Any]]:
        """Predict, and say which share each word has in the decision, by integrated gradients.

        A decision is a number: of a classification the logit of a label above the mean of those of
        the other labels, else a logit or a score. The shares of all words add up to its difference
        from the decision about the same text with `[MASK]` for every token. All is computed in the
        precision of the weights (int8 ones: float32), whatever `set_precision` says.

        Args:
            task: Name of a task that scores texts, such as a classification, by their head.
            sentences: Rows as for `predict`: sentences, or pairs of them.
            label: The label, or target of a regression, that the shares are about; None for the
                predicted label of each row, of several labels the most probable one, of several
                targets the first one.

        Returns:
            For each row what `predict` returns, and `explained`, the label; `decision`;
            `baseline`, the decision without words; and `words`, each with `start` and `end` in
            the characters of its text, `share`, and of a pair `text`, 1 or 2. A word above 0
            speaks for the decision, one below 0 against it. What was truncated is not among them.

        Raises:
            ValueError: If there is no such task or label, or the task is of another kind.

        Source: Sundararajan, Taly and Yan 2017, section 3.
        """
        from .explanations import explain

        return explain(self, task, sentences, label)

    def teach(
        self,
        task: str,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        **batching: Unpack[Batching],
    ) -> Tensor:
        """Compute what a student learns from this model as its teacher; see `distillation`.

        Args:
            task: Name of a task that scores texts, such as a classification; none about tokens or
                vectors.
            sentences: Rows as for `predict`: sentences, or pairs of them.
            **batching: See `Batching`; computed in float32 by default.

        Returns:
            Float32 logits on the CPU, (number of rows, K); scores in units of the range for a
            similarity, (number of rows, 1).

        Raises:
            ValueError: If there is no such task, or it has another type; else as for `predict`.
        """
        predictor, spec = self._predictor(task, None), self._head(task).task
        if not isinstance(predictor, PooledPredictor) or spec.is_unlabelled:
            raise ValueError(f"task {task!r} is {spec.kind}, which does not score texts")
        check_container(sentences, task)
        options = Batching(precision="float32") | batching
        computed = self._compute_rows([predictor], sentences, options)
        none = torch.empty(0, spec.num_logits)  # of no rows
        return torch.cat([none, *(predictor.teach() for _ in computed)])

    def decode(self, task: str, logits: Tensor) -> Tensor:
        """Convert logits of a task to predictions.

        Args:
            task: Name of the task.
            logits: (B, K); of a contrastive task (B, S, D), of a token_classification (..., K).

        Returns:
            (B,), of a token_classification (...): class ids, 0/1 for a paraphrase, scores within
            the range of the task, or cosines of the first two sentences for a contrastive task. Of
            a regression with several targets (B, K).
        """
        return self._head(task).decode(torch.as_tensor(logits))

    def fit_threshold(self, task: str, logits: Tensor, labels: Tensor) -> Any:
        """Choose the decision threshold of a cosine that classifies most pairs correctly.

        It becomes part of the configuration, and is saved with the model. A
        multi_label_classification chooses thresholds of probabilities, each for the best F1.

        Args:
            task: Name of a task with a decision threshold, such as a cosine paraphrase task.
            logits: Of labeled rows in evaluation mode, (B, K); if none is finite the threshold
                stays.
            labels: 1 for a paraphrase, 0 for a non-paraphrase, -100 for rows to ignore, (B,).

        Returns:
            The cosine, in [-1, 1]; of a multi_label_classification the probability of each label.

        Raises:
            ValueError: If the task has no such threshold, or no row has a label.
        """
        head = self._head(task)
        spec = head.task
        if not getattr(head, "has_threshold", False):
            raise ValueError(
                f"task {task!r}, a {spec.problem_type} with head {getattr(spec, 'head', None)!r}, "
                "has no decision threshold to fit: a paraphrase with head 'cosine' has one"
            )
        value = head.fit_threshold(torch.as_tensor(logits), torch.as_tensor(labels))
        self._store(task, spec)
        return value

    def fit_temperature(self, task: str, logits: Tensor, labels: Tensor) -> float | None:
        """Calibrate the probabilities of a task by one temperature, with held-out rows.

        It becomes part of the configuration, and is saved with the model. From then on, `predict`
        and transformers' pipeline `text-classification` around this model return softmax or
        sigmoid of `logits / temperature`; the pipeline around a wrapper of it, as of peft or
        `torch.compile`, and `token-classification` do not. Logits, losses and decisions stay:
        thresholds on probabilities move along.

        Args:
            task: Name of a task with probabilities, such as a classification.
            logits: Of labeled rows that were not trained on, in evaluation mode, (n, K), or of a
                token_classification (..., K). Rows that are not finite do not count.
            labels: (n,), of a multi_label_classification (n, K), of a token_classification (...);
                -100 does not count.

        Returns:
            The temperature, which minimizes the negative log-likelihood; above 1 if the model was
            too confident. None if there is no such minimum, as when all rows are right; then the
            probabilities are those without a temperature.

        Raises:
            ValueError: If the task predicts no probabilities, or no row has a label.

        Source: Guo et al. 2017, section 4.2.
        """
        head = self._head(task)
        spec = head.task
        if not (hasattr(spec, "temperature") and spec.is_likelihood):
            raise ValueError(
                f"task {task!r}, a {spec.problem_type} with loss {getattr(spec, 'loss', None)!r}, "
                "predicts no probabilities to calibrate"
            )
        from .calibration import fit_temperature

        value = fit_temperature(head, torch.as_tensor(logits), torch.as_tensor(labels))
        self._store(task, spec)
        return value

    def _store(self, task: str, spec: Any) -> None:
        """Make what was fitted part of the configuration, and say where it is not saved."""
        self.config.tasks = {**(self.config.tasks or {}), task: asdict(spec)}
        if hasattr(self, "peft_config"):
            warn_once(
                f"task {task!r}: an adapter that is saved alone lacks what was fitted; save the "
                "merged model, as minbert finetune does by itself"
            )

    def count_terms(self, task: str, labels: Tensor) -> Tensor:
        """Count the terms that the loss of a batch is a mean of, for means over several batches.

        These are the `labels` that are not -100, of rows, tokens, or entries of a row; of
        `multiple_negatives_ranking` the positive pairs, each compared with the rows of its batch.
        `cosent`, which is no mean, counts rows. A contrastive task has no labels: give 1 for each
        row.
        """
        self.config.task(task)  # refuses unknown tasks
        return self._find_head(task).count_terms(labels)

    def gather_rows(self) -> None:
        """Let losses that compare rows use the rows of all processes in training.

        Losses then equal the losses of one process with the whole batch, and so do gradients
        averaged over the processes, as by `DistributedDataParallel`. From then on all processes
        must compute the same tasks in the same order. `MultiTaskTrainer` calls it.
        """
        for head in _unwrap(self.heads):
            head.gathers = True

    def smooth_labels(self, task: str, factor: float) -> None:
        """Train a task with cross_entropy or bce towards labels spread over all classes.

        `factor`, in [0, 1), is the share that is spread. Where classes are weighted, the whole loss
        of a row has the weight of its label. The loss of evaluation stays plain. `MultiTaskTrainer`
        calls it.

        Source: Szegedy et al. 2016, section 7.
        """
        for head in _unwrap(self._head(task)):
            head.label_smoothing = factor

    def divergence(self, task: str, logits: Tensor, other: Tensor) -> Tensor:
        """Compute how much two predictions of the same rows differ, for R-Drop.

        With the losses cross_entropy and bce this is the symmetric Kullback-Leibler
        divergence, KL(P || Q) + KL(Q || P), in nats, of the classes or of the two outcomes of a
        single logit. With other losses it is the squared difference of scores, cosines, or the
        vectors of a contrastive task.

        Args:
            task: Name of the task.
            logits: Of one pass, as `decode` takes them.
            other: Of another pass over the same rows.

        Returns:
            The mean over the rows, in float32, with gradients for both.

        Raises:
            ValueError: If the task is of pre-training, tags or questions, or shapes differ.

        Source: Liang et al. 2021, section 2.1 (half of this sum).
        """
        from .distillation import diverge

        return diverge(self._head(task), logits, other)

    def distillation(
        self,
        task: str,
        logits: Tensor,
        teacher: Tensor,
        temperature: float = 1.0,
        labels: Tensor | None = None,
    ) -> Tensor:
        """Compute how much predictions differ from those of teachers, to learn from them.

        This is `T^2 KL(P || Q)` in nats, where Q is the distribution of the student at the
        temperature T, and P the mean of those of the teachers: of the classes, of the two outcomes
        of each single logit (a mean over them), or of the first and the last tokens of answers (a
        mean of both). For a similarity it is the squared difference from the mean score of the
        teachers, in units of the range, or with the loss `bce`, whose scores are probabilities,
        `KL(P || Q)`; and for a contrastive task the mean of `1 - cosine`. These have no
        temperature.

        Args:
            task: Name of the task.
            logits: Of the student, as `decode` takes them; of a question_answering start and end,
                (B, L, 2).
            teacher: What `teach` returns for the same rows, with a dimension of M teachers before
                the last one. NaN where there is no teacher, as at paddings.
            temperature: T.
            labels: Of a token_classification, (B, L): tokens with -100 do not count.

        Returns:
            The mean over the rows, or tokens, that have a teacher, in float32.

        Raises:
            ValueError: If the task is of pre-training, or the shapes do not fit.

        Source: Hinton et al. 2015, section 2; for vectors Reimers and Gurevych 2020, section 2.
        """
        from .distillation import distill

        return distill(self._head(task), logits, teacher, temperature, labels)


def check_row_of_pipeline(name: str, task: Any, inputs: Any, config: MinBertConfig) -> None:
    """Refuse what transformers' own pipelines would answer otherwise than `predict`.

    They know one label a row, the one with the highest score, and the start of a text.
    """
    advice = f"use predict({name!r}, ...) of the model"
    if task.problem_type != "classification" or task.is_separate or task.truncation != "head":
        raise ValueError(
            f"task {name!r}: this pipeline of transformers knows classifications that read the "
            f"head of a text, or of a joint pair, only: {advice}"
        )
    ids: Any = ids_of(inputs)
    mask = inputs[1]
    tokens = ids.shape[-1] if mask is None else int(mask.ne(0).sum(dim=-1).max())
    limit = task.reading(config).max_length
    if tokens > limit:
        raise ValueError(
            f"task {name!r} reads {limit} tokens of a text, but this pipeline of transformers "
            f"gives {tokens}: pass truncation=True, max_length={limit} to it, or {advice}"
        )


def _unwrap(module: nn.Module) -> Iterator[MinBertHead]:
    """Yield the heads in a module, also those that a wrapper, such as that of peft, calls."""
    return (each for each in module.modules() if isinstance(each, MinBertHead))


__all__ = ["MinBertForMultiTask"]
