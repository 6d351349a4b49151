"""Fine-tune one MinBert on several tasks.

    accelerate launch finetune.py [recipe.yaml] [--flag value ...]

Without arguments it is the quickstart. Flags are the fields of `FinetuneArguments` and of
`TrainingArguments`, whose defaults suit the device; they win over the recipe.
"""

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase, TrainingArguments, set_seed

from datasets_scripts import (
    ChainedTexts,
    LoadedTask,
    corpus_texts,
    load_task,
    train_wordpiece,
)
from minbert_cli.tasks import (
    RecipeText,
    answer_search,
    encode_task,
    find_glue,
    find_glue_files,
    find_hub_datasets,
    find_metrics,
    parse_tasks,
)
from minbert_cli.texts import (
    Text,
    describe_card,
    fit_together,
    load_text,
    load_tokenizer,
    new_config,
    share,
)
from modeling_minbert import MinBertConfig, MinBertForMultiTask
from trainers import (
    FinetuneArguments,
    GlueFile,
    MultiTaskTrainer,
    Program,
    RunFacts,
    add_lora,
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

HERE = Path(__file__).parents[1]
QUICKSTART = HERE / "recipes" / "quickstart.yaml"


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
    parts = (texts, corpus_texts(corpora)) if corpora else (texts,)
    return train_wordpiece(ChainedTexts(parts), new_config(arguments.model_config).vocab_size)


def load_model(
    arguments: FinetuneArguments, heads: dict[str, Any], tokenizer: PreTrainedTokenizerBase
) -> MinBertForMultiTask:
    """Load the encoder of a checkpoint, or make a new one, with a head for every task.

    Raises:
        ValueError: If sizes, checkpoint and tokenizer do not fit together.
    """
    path = arguments.model_name_or_path
    described = MinBertConfig(tasks=heads)
    reads_pooler = any(described.task(name).uses_pooler for name in heads)
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
    length = arguments.max_length
    lengths = [described.task(name).encoding_options(length)["max_length"] for name in heads]
    fit_together(model, tokenizer, path, max(length, *lengths))
    if arguments.mode == "frozen":
        freeze_encoder(model)
    if arguments.lora is not None:
        add_lora(model, arguments.lora, trained=("heads.", "cls.", "bert.pooler."))
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
    tokenizer = share(args, lambda: find_tokenizer(arguments, tasks, recipe_texts, checkpoint))
    heads = {
        name: task.describe_head(tasks[name], arguments.max_length) for name, task in recipe.items()
    }
    heads |= {name: {"problem_type": text.problem_type} for name, text in recipe_texts.items()}
    model = load_model(arguments, heads, tokenizer)
    with args.main_process_first(desc="encode the data"):
        encoded: dict[str, dict[str, Any]] = {
            name: encode_task(
                arguments, task, recipe[name].data, model.config.task(name), tokenizer
            )
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
    quotes = arguments.count_examples(args) > 0  # the results may be published
    facts = RunFacts(
        command=describe_command("finetune.py", argv),
        recipe=describe_recipe(str(recipe_path)),
        model_name_or_path=arguments.model_name_or_path,
        data={name: task.source for name, task in (recipe | recipe_texts).items()},
        bad_rows={
            name: [row.describe(quotes=quotes) for row in task.bad_rows]
            for name, task in tasks.items()
        }
        | {name: text.problems for name, text in texts.items()},
        text={name: text.facts for name, text in texts.items()},
        splits={name: task.facts for name, task in tasks.items()},
        fingerprints={name: found.fingerprint for name, found in (tasks | texts).items()},
        card=describe_card(arguments, find_hub_datasets(recipe, recipe_texts)),
    )
    read = {name: task.splits["validation"] for name, task in tasks.items()}
    return Run(trainer, encoded, facts, arguments, read, find_glue_files(recipe, tasks))


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
