"""Fine-tune one MinBert on several tasks.

    accelerate launch finetune.py [recipe.yaml] [--flag value ...]

Without arguments it is the quickstart. Flags are the fields of `FinetuneArguments` and of
`TrainingArguments`, whose defaults suit the device; they win over the recipe.
"""

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase, TrainingArguments, set_seed

from compose import (
    Text,
    describe_card,
    fit_together,
    load_text,
    load_tokenizer,
    new_config,
    parse_corpus,
)
from datasets_scripts import (
    DATASETS,
    CorpusData,
    LoadedTask,
    TaskData,
    WindowSizes,
    corpus_texts,
    encode_questions,
    encode_rows,
    encode_tagged,
    load_task,
    train_wordpiece,
)
from modeling_minbert import MinBertConfig, MinBertForMultiTask, MinBertTask
from trainers import (
    TEXT_TYPES,
    AnswerSearch,
    FinetuneArguments,
    GlueFile,
    MultiTaskTrainer,
    Program,
    RunFacts,
    TaskTraining,
    TextArguments,
    add_lora,
    check_metric,
    check_types,
    deal_keys,
    describe_command,
    describe_recipe,
    evaluate_run,
    load_pretrained,
    missing_files,
    named_errors,
    report_run,
    split_argv,
    spread,
    spread_questions,
    write_card,
    write_results,
    write_submission,
)

HERE = Path(__file__).parent
QUICKSTART = HERE / "recipes" / "quickstart.yaml"


@dataclass(frozen=True)
class RecipeTask:
    """A task of the recipe, dealt to those who read its keys: data, head and training."""

    data: TaskData
    head: dict[str, Any]
    training: TaskTraining

    @classmethod
    def from_recipe(cls, name: str, keys: Any, data_dir: str | None) -> "RecipeTask":
        """Check the keys of a task.

        Raises:
            ValueError: If a key is unknown or a value is refused.
        """
        kinds = (TaskData, MinBertTask, TaskTraining)
        data, head, training = deal_keys(f"task {name!r}", keys, kinds)
        try:
            task_training = TaskTraining(**training)
        except ValueError as error:
            raise ValueError(f"task {name!r}: {error}") from None
        # What data and head both have to know comes from the data.
        own = {key: value for key, value in head.items() if key not in data}
        task_data = TaskData.from_recipe(name, data, data_dir)
        check_metric(name, str(task_data.problem_type), task_data.metric or ())
        return cls(task_data, own, task_training)

    @property
    def source(self) -> str:
        """Name of the data."""
        return self.data.hub_id or self.data.dataset or Path(str(self.data.train_file)).name

    @property
    def hub_dataset(self) -> str | None:
        """Name on the Hub of the data, or of a copy of them; None if there is none."""
        row = DATASETS.get(str(self.data.dataset))
        found = self.data.hub_id or (row.hub_id if row else None)
        return None if found is None or Path(found).exists() else found.partition(":")[0]

    def describe_head(self, rows: LoadedTask, max_length: int = 384) -> dict[str, Any]:
        """Complete the head by what the rows say.

        Args:
            rows: The rows.
            max_length: Tokens of a window at most, for questions that do not say it themselves.

        Raises:
            ValueError: If it contradicts the rows, or a class that is to be weighted has no row.
        """
        head = dict(self.head)
        texts = [name for name in rows.splits["train"].column_names if name.startswith("sentence")]
        if rows.problem_type == "contrastive":
            if "num_sentences" in head:
                raise ValueError(
                    f"task {rows.name!r}: num_sentences is the number of text_columns, "
                    f"{len(texts)}; leave it out"
                )
            head["num_sentences"] = len(texts)
        elif rows.problem_type != "token_classification":
            head = {"pair_encoding": "joint" if len(texts) > 1 else None, **head}
        if head.get("class_weights") == "balanced":
            head["class_weights"] = balanced_weights(rows)
        if rows.problem_type == "question_answering":
            is_v2 = 0 in rows.splits["train"].unique("label")
            defaults = {"null_score_diff_threshold": 0.0} if is_v2 else {}
            head = {"max_length": max_length, **defaults, **head}
        found = {"labels": rows.labels, "score_range": rows.score_range}
        return {
            **head,
            "problem_type": rows.problem_type,
            **{key: list(values) for key, values in found.items() if values is not None},
        }


def balanced_weights(task: LoadedTask) -> list[float]:
    """Weight every class so that all have the same sum: rows / (classes * rows of the class).

    Args:
        task: A classification.

    Returns:
        The weights in the order of the labels.

    Raises:
        ValueError: If the task has no classes, or one of them has no training row.
    """
    labels = task.labels or ()
    if not labels or task.problem_type != "classification":
        raise ValueError(
            f"task {task.name!r}: class_weights are for a classification: leave them out"
        )
    counts = np.bincount(task.splits["train"]["label"], minlength=len(labels))
    if missing := [name for name, count in zip(labels, counts, strict=True) if not count]:
        raise ValueError(
            f"task {task.name!r}: class_weights='balanced', but no training row has the label "
            f"{missing[0]!r}; give a list of weights"
        )
    weights: list[float] = (counts.sum() / (len(labels) * counts)).tolist()
    return weights


@dataclass(frozen=True)
class RecipeText:
    """A task of the recipe that learns from text without labels.

    Args:
        problem_type: What it learns.
        corpora: The texts.
        arguments: How they are cut and masked.
        training: How the task is trained.
    """

    problem_type: str
    corpora: dict[str, CorpusData]
    arguments: TextArguments
    training: TaskTraining

    @classmethod
    def from_recipe(cls, name: str, keys: dict[str, Any], data_dir: str | None) -> "RecipeText":
        """Check the keys of a task.

        Raises:
            ValueError: If a key is unknown or missing, or a value is refused.
        """
        where, kind = f"task {name!r}", keys["problem_type"]
        own = {key: value for key, value in keys.items() if key != "problem_type"}
        text, training = deal_keys(where, own, (TextArguments, TaskTraining))
        check_types(where, TextArguments, text)
        try:
            arguments = TextArguments(**{"corpus": {}, **text})
            arguments.choose_packing(kind)
            task_training = TaskTraining(**training)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{where}: {error}") from None
        return cls(kind, parse_corpus(where, arguments.corpus, data_dir), arguments, task_training)

    @property
    def source(self) -> str:
        """Name of the data."""
        return " + ".join(self.corpora)


def parse_tasks(
    arguments: FinetuneArguments,
) -> tuple[dict[str, RecipeTask], dict[str, RecipeText]]:
    """Check all tasks of a recipe: those with labels, and those that learn from text.

    Raises:
        ValueError: If a key is unknown, a value is refused, or there are no labels at all.
    """
    tasks, texts = {}, {}
    for name, keys in arguments.tasks.items():
        if isinstance(keys, dict) and keys.get("problem_type") in TEXT_TYPES:
            texts[name] = RecipeText.from_recipe(name, keys, arguments.data_dir)
        else:
            tasks[name] = RecipeTask.from_recipe(name, keys, arguments.data_dir)
    if not tasks:
        raise ValueError(
            f"tasks: {', '.join(texts)} learn from text alone; add a task with labels, or use "
            "pretrain.py"
        )
    return tasks, texts


def find_metrics(tasks: Mapping[str, RecipeTask]) -> dict[str, tuple[str, ...]]:
    """List the metrics that stand for tasks, where they are not those of the problem type."""
    return {name: task.data.metric for name, task in tasks.items() if task.data.metric is not None}


def find_glue_files(tasks: Mapping[str, RecipeTask]) -> dict[tuple[str, str], GlueFile]:
    """Tell what the server of GLUE calls the predictions of a task and split."""
    files: dict[tuple[str, str], GlueFile] = {}
    for name, task in tasks.items():
        wanted, kind = task.data.submission, str(task.data.problem_type)
        if wanted is None:
            continue
        labels = task.data.labels if wanted.labels else None
        files |= {
            (name, split): GlueFile(file, kind, labels) for split, file in wanted.files.items()
        }
    return files


def find_glue(tasks: Mapping[str, RecipeTask]) -> list[str]:
    """List the tasks of GLUE, but those that are there to help others."""
    counted = {name: task for name, task in tasks.items() if not task.training.auxiliary}
    return [name for name, task in counted.items() if task.data.submission is not None]


@dataclass(frozen=True)
class Run:
    """What a run is made of.

    Args:
        trainer: The trainer, with model and tokenizer.
        encoded: By task and split, the rows.
        facts: What one must know to repeat it.
        arguments: Those of the program.
        texts: The validation rows of the tasks with labels before they were encoded.
        glue_files: By task and split, what the server of GLUE calls their predictions.
    """

    trainer: MultiTaskTrainer
    encoded: dict[str, dict[str, Any]]
    facts: RunFacts
    arguments: FinetuneArguments
    texts: dict[str, Dataset]
    glue_files: dict[tuple[str, str], GlueFile]

    def rows_to_evaluate(self) -> dict[str, dict[str, Any]]:
        """Choose the held-out rows, and if asked for as many training rows of each task."""
        chosen = {}
        for task, splits in self.encoded.items():
            rows = {split: found for split, found in splits.items() if split != "train"}
            if self.arguments.evaluate_train:
                # they show how much was learnt by heart
                is_question = self.trainer.problem_types[task] == "question_answering"
                choose = spread_questions if is_question else spread
                rows["train"] = choose(splits["train"], len(splits["validation"]))
            chosen[task] = rows
        return chosen


def find_tokenizer(
    arguments: FinetuneArguments,
    tasks: Mapping[str, LoadedTask],
    recipe_texts: Mapping[str, RecipeText],
    checkpoint: str | None,
) -> PreTrainedTokenizerBase:
    """Load the tokenizer of the checkpoint, or train one on the training texts of a new model.

    Args:
        arguments: The arguments.
        tasks: The tasks with labels.
        recipe_texts: The tasks that learn from text.
        checkpoint: That with which a run goes on; its vocabulary is that of its weights.
    """
    if arguments.model_name_or_path is not None:
        return load_tokenizer(arguments.model_name_or_path)
    if checkpoint is not None:
        return load_tokenizer(checkpoint, "resume_from_checkpoint")
    train = [task.splits["train"] for task in tasks.values()]
    columns = [rows[name] for rows in train for name in rows.column_names if "sentence" in name]
    texts = [text for column in columns for text in column]
    tagged = [rows["words"] for rows in train if "words" in rows.column_names]
    texts += [" ".join(words) for column in tagged for words in column]
    corpora = [data for text in recipe_texts.values() for data in text.corpora.values()]
    texts += corpus_texts(corpora) if corpora else []
    return train_wordpiece(texts, new_config(arguments.model_config).vocab_size)


def load_model(
    arguments: FinetuneArguments, heads: dict[str, Any], tokenizer: PreTrainedTokenizerBase
) -> MinBertForMultiTask:
    """Load the encoder of a checkpoint, or make a new one, with a head for every task.

    Raises:
        ValueError: If sizes, checkpoint and tokenizer do not fit together.
    """
    path = arguments.model_name_or_path
    described = MinBertConfig(tasks=heads)
    reads_pooler = any(described.task(name).pooling == "pooler" for name in heads)
    # a frozen pooler has to be one that was trained
    keep_pooler = arguments.mode == "frozen" and reads_pooler
    if path is None:
        config = new_config(arguments.model_config, vocab_size=len(tokenizer), tasks=heads)
        model = MinBertForMultiTask(config)
    else:
        model = load_pretrained(
            MinBertForMultiTask,
            path,
            replaceable=("heads.", "cls.") if keep_pooler else ("heads.", "cls.", "bert.pooler."),
            tasks=heads,
            dtype=torch.float32,
        )
    longest = [described.task(name).max_length or 0 for name in heads]
    fit_together(model, tokenizer, path, max(arguments.max_length, *longest))
    if arguments.mode == "frozen":
        freeze_encoder(model)
    if arguments.lora is not None:
        add_lora(model, arguments.lora, trained=("heads.", "cls."))
    return model


def freeze_encoder(model: MinBertForMultiTask) -> None:
    """Leave only the heads to be trained.

    Raises:
        ValueError: If a head has no weights.
    """
    model.bert.requires_grad_(requires_grad=False)
    for name, head in model.heads.items():
        if not list(head.parameters()):
            raise ValueError(
                f"task {name!r}: mode='frozen' trains heads only, and a cosine head has no "
                "weights; use head: concat"
            )


def window_sizes(arguments: FinetuneArguments, head: MinBertTask) -> WindowSizes:
    """Say how the questions of a task and their passages are cut.

    Raises:
        ValueError: If a question could leave no room for a passage.
    """
    given = (head.max_length or arguments.max_length, head.max_question_length, head.doc_stride)
    names = ("max_length", "max_question_length", "doc_stride")
    return WindowSizes(
        **{name: size for name, size in zip(names, given, strict=True) if size is not None}
    )


def answer_search(head: MinBertTask) -> AnswerSearch:
    """Say how the answers of a task are chosen."""
    search = AnswerSearch(null_score_diff_threshold=head.null_score_diff_threshold)
    if head.max_answer_length is None:
        return search
    return replace(search, max_answer_length=head.max_answer_length)


def encode(
    arguments: FinetuneArguments,
    task: LoadedTask,
    data: TaskData,
    head: MinBertTask,
    tokenizer: Any,
) -> dict[str, Dataset]:
    """Encode all splits of a task.

    Raises:
        ValueError: If the rows of a task cannot be cut as it says.
    """
    if task.problem_type == "token_classification":
        return {
            split: encode_tagged(
                rows,
                tokenizer,
                max_length=arguments.max_length,
                document_context=data.document_context,
            )
            for split, rows in task.splits.items()
        }
    if task.problem_type == "question_answering":
        try:
            sizes = window_sizes(arguments, head)
        except ValueError as error:
            raise ValueError(f"task {task.name!r}: {error}") from None
        return {
            split: encode_questions(rows, tokenizer, sizes) for split, rows in task.splits.items()
        }
    return {
        split: encode_rows(
            rows,
            tokenizer,
            problem_type=task.problem_type,
            pair_encoding=head.pair_encoding,
            max_length=arguments.max_length,
            truncation=head.truncation,
        )
        for split, rows in task.splits.items()
    }


def prepare_run(
    arguments: FinetuneArguments,
    training_arguments: TrainingArguments,
    argv: list[str],
    checkpoint: str | None,
) -> Run:
    """Load everything that a run needs; nothing is written to its folder."""
    args = training_arguments
    recipe_path, _ = split_argv(argv, QUICKSTART)
    recipe, recipe_texts = parse_tasks(arguments)
    callbacks = arguments.make_callbacks(args)
    if arguments.model_name_or_path is not None:
        load_pretrained(MinBertConfig, arguments.model_name_or_path)  # a wrong one fails at once
    set_seed(args.seed)  # new heads are drawn before the Trainer sets it
    with args.main_process_first(desc="load the data"):
        tasks = {name: load_task(task.data) for name, task in recipe.items()}
    tokenizer = find_tokenizer(arguments, tasks, recipe_texts, checkpoint)
    heads = {
        name: task.describe_head(tasks[name], arguments.max_length) for name, task in recipe.items()
    }
    heads |= {name: {"problem_type": text.problem_type} for name, text in recipe_texts.items()}
    model = load_model(arguments, heads, tokenizer)
    with args.main_process_first(desc="encode the data"):
        encoded: dict[str, dict[str, Any]] = {
            name: encode(arguments, task, recipe[name].data, model.config.task(name), tokenizer)
            for name, task in tasks.items()
        }
        texts = {
            name: encode_text(arguments, args, text, tokenizer)
            for name, text in recipe_texts.items()
        }
    encoded |= {name: text.splits for name, text in texts.items()}
    order = list(arguments.tasks)  # that of the round robin
    advice = "check the network, log in with `hf auth login`, or train without it"
    with named_errors("push_to_hub", advice) if args.push_to_hub else nullcontext():
        trainer = MultiTaskTrainer(
            model,
            args,
            problem_types={name: model.config.task(name).problem_type for name in order},
            train_dataset={name: encoded[name]["train"] for name in order},
            eval_dataset={name: encoded[name]["validation"] for name in order},
            task_training={name: task.training for name, task in (recipe | recipe_texts).items()},
            answer_search={
                name: answer_search(model.config.task(name))
                for name, task in tasks.items()
                if task.problem_type == "question_answering"
            },
            masking={name: text.masking for name, text in texts.items() if text.masking},
            stop=arguments.parse_stop(),
            sampling=arguments,
            metrics=find_metrics(recipe),
            glue_tasks=find_glue(recipe),
            gradient_surgery=arguments.gradient_surgery,
            max_tokens_per_batch=arguments.max_tokens_per_batch,
            exponential_lr_gamma=arguments.exponential_lr_gamma,
            methods=arguments,
            processing_class=tokenizer,
            callbacks=callbacks,
        )
    facts = RunFacts(
        command=describe_command("finetune.py", argv),
        recipe=describe_recipe(str(recipe_path)),
        model_name_or_path=arguments.model_name_or_path,
        data={name: task.source for name, task in (recipe | recipe_texts).items()},
        bad_rows={name: [str(row) for row in task.bad_rows] for name, task in tasks.items()}
        | {name: text.problems for name, text in texts.items()},
        text={name: text.facts for name, text in texts.items()},
        splits={name: task.facts for name, task in tasks.items()},
        fingerprints={name: found.fingerprint for name, found in (tasks | texts).items()},
        card=describe_card(arguments, [task.hub_dataset for task in recipe.values()]),
    )
    read = {name: task.splits["validation"] for name, task in tasks.items()}
    return Run(trainer, encoded, facts, arguments, read, find_glue_files(recipe))


def encode_text(
    arguments: FinetuneArguments,
    args: TrainingArguments,
    text: RecipeText,
    tokenizer: PreTrainedTokenizerBase,
) -> Text:
    """Tokenize the text of a task."""
    return load_text(
        text.corpora,
        text.arguments,
        tokenizer,
        problem_type=text.problem_type,
        max_length=arguments.max_length,
        seed=args.seed if args.data_seed is None else args.data_seed,
    )


def report(run: Run) -> None:
    """Evaluate the trained model, print the tables, and write results, model card and report."""
    rows = run.rows_to_evaluate()
    splits = list({split for found in rows.values() for split in found})
    results, outputs = evaluate_run(run.trainer, rows, splits)
    if not run.trainer.is_world_process_zero():
        return
    write_results(run.trainer, run.encoded, results, outputs, run.facts)
    write_card(HERE / "model_card.md", run.trainer, run.encoded, results, run.facts)
    quoted = run.arguments.count_examples(run.trainer.args)
    page = report_run(run.trainer, run.encoded, outputs, run.texts, quoted)
    for split, found in results.items():
        print(f"\n{split}\n{found.table(run.trainer.problem_types, run.trainer.metrics)}")
        if found.types:
            print(f"\n{found.type_table()}")
    output_dir = str(run.trainer.args.output_dir)
    archive = write_submission(output_dir, run.glue_files, run.encoded, outputs)
    if archive is not None:
        missing = ", ".join(missing_files(archive))
        print(f"\nGLUE server: {archive}" + (f"; it also wants {missing}" if missing else ""))
    if page is not None:
        print(f"\nreport: {page}")


PROGRAM = Program("finetune.py", FinetuneArguments, QUICKSTART, prepare_run, report)


def main(argv: list[str] | None = None) -> None:
    """Fine-tune, evaluate, predict, save and, if asked for, push."""
    PROGRAM.main(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    main()
