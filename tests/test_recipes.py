"""Every recipe parses, and its tasks have a head, a metric and rows, or a text."""

import json
from pathlib import Path

import pytest
from transformers import TrainingArguments

from datasets_scripts import DATASETS, CorpusData, load_task
from minbert_cli import FinetuneArguments, PretrainArguments, finetune, pretrain, recipe_tasks
from modeling_minbert import MinBertConfig
from tests.glue_files import write_glue
from tests.nli_files import write_snli
from tests.small_run import parse_recipe
from tests.test_finetune_questions import make_questions
from trainers import PROBLEMS, check_arguments, make_problems

ROOT = Path(__file__).parents[1]
FILES = [
    *sorted((ROOT / "recipes").glob("*.yaml")),
    *sorted((ROOT / "recipes/glue").glob("*.yaml")),
]
PRETRAINING = [path for path in FILES if "\n# minbert pretrain" in path.read_text(encoding="utf-8")]
FINETUNING = [path for path in FILES if "\n# minbert finetune" in path.read_text(encoding="utf-8")]
RECIPES = [*PRETRAINING, *FINETUNING]
DEFAULTS = {finetune.QUICKSTART: "finetune.py", pretrain.QUICKSTART: "pretrain.py"}
GLUE = [name for name, row in DATASETS.items() if row.is_of_glue]
# The sample stands for the official files, which are not part of the project.
SAMPLES = {
    "sst": "sample_sst",
    "cfimdb": "sample_sst",
    "quora": "sample_quora",
    "sts": "sample_sts",
}
# Questions have no sample: files of the test stand for the official ones.
QUESTIONS = {"squad": ("v1.1", False), "squad_v2": ("v2.0", True)}


@pytest.fixture(params=FINETUNING, ids=lambda path: path.stem)
def recipe(request):
    """Return the path of a recipe of finetune.py."""
    return request.param


def parse(path, kind=FinetuneArguments, *flags):
    argv = [str(path), "--use_cpu", *flags]
    return parse_recipe((kind, TrainingArguments), argv)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_begins_with_its_purpose_and_its_command(recipe):
    sentence, command = recipe.read_text(encoding="utf-8").splitlines()[:2]

    program = "pretrain" if recipe in PRETRAINING else "finetune"
    name = recipe.relative_to(ROOT / "recipes").with_suffix("")
    named = "" if recipe in DEFAULTS else f" {name}"
    assert sentence.startswith("# ")
    assert sentence.endswith(".")
    assert command.startswith(f"# minbert {program}{named}")


@pytest.mark.parametrize("recipe", PRETRAINING, ids=lambda path: path.stem)
def test_a_recipe_of_pre_training_has_a_text_and_a_metric(recipe):
    starts = [] if "model_size" in recipe.read_text(encoding="utf-8") else ["a/b"]
    flags = [f"--model_name_or_path={start}" for start in starts]
    arguments, training_arguments = parse(recipe, PretrainArguments, *flags)

    for name, keys in arguments.corpus.items():
        CorpusData.from_recipe(name, keys, "data")
    check_arguments(training_arguments, make_problems({pretrain.TASK: arguments.problem_type}))


def test_every_task_has_a_metric_that_can_choose_the_best_checkpoint(recipe):
    arguments, training_arguments = parse(recipe)
    tasks = {
        name: recipe_tasks.RecipeTask.from_recipe(name, keys, "data")
        for name, keys in arguments.tasks.items()
    }
    problem_types = {name: task.data.problem_type for name, task in tasks.items()}

    metrics = {name: task.metrics for name, task in tasks.items()}
    glue = [name for name, task in tasks.items() if task.in_glue]
    check_arguments(training_arguments, make_problems(problem_types, metrics=metrics), glue)

    assert set(problem_types.values()) <= set(PROBLEMS)


@pytest.fixture(scope="module")
def glue_folder(tmp_path_factory):
    """Return a folder of GLUE with a few rows of each task."""
    return write_glue(tmp_path_factory.mktemp("glue"))


def write_tags(folder):
    """Write the official files of CoNLL-2003 with words of our own."""
    text = "-DOCSTART- -X- O O\n\n" + "Ann NNP I-NP I-PER\nleft VBD I-VP O\n\n" * 100
    for name in ("eng.train", "eng.testa"):
        (folder / name).write_text(text, encoding="utf-8")


def write_questions(folder, dataset):
    version, impossible = QUESTIONS[dataset]
    for split in ("train", "dev"):
        content = make_questions(split, impossible=impossible, count=100)
        (folder / f"{split}-{version}.json").write_text(json.dumps(content), encoding="utf-8")


def write_own(folder, keys):
    """Write the files of a task that has own ones, a column for each text; return their paths."""
    paths = {
        key: str(folder / keys[key]) for key in keys if key in ("train_file", "validation_file")
    }
    for path in paths.values():
        lines = ["\t".join(f"{name} {row}" for name in keys["text_columns"]) for row in range(100)]
        Path(path).write_text(
            "\n".join(["\t".join(keys["text_columns"]), *lines]), encoding="utf-8"
        )
    return paths


@pytest.fixture
def tasks(recipe, glue_folder, tmp_path):
    """Return the tasks of a recipe with rows that stand for its own."""
    arguments, _ = parse(recipe)
    write_snli(tmp_path, rows=120)
    write_tags(tmp_path)
    for dataset in QUESTIONS:
        write_questions(tmp_path, dataset)
    found = {}
    for name, keys in arguments.tasks.items():
        dataset = keys.get("dataset")
        found[name] = keys | write_own(tmp_path, keys)
        if dataset is not None:
            found[name]["dataset"] = SAMPLES.get(dataset, dataset)
        if "unlabeled_file" in keys:
            found[name]["unlabeled_file"] = str(tmp_path / "texts.csv")
            (tmp_path / "texts.csv").write_text("sentence1\na film\na song\n", encoding="utf-8")
        if dataset in ("snli", "conll2003", *QUESTIONS):
            found[name]["data_dir"] = str(tmp_path)
        elif dataset in GLUE:
            found[name]["data_dir"] = str(glue_folder)
    return found


def test_every_task_has_a_head_and_rows(recipe, tasks):
    arguments, _ = parse(recipe)
    heads = {}
    for name, keys in tasks.items():
        task = recipe_tasks.RecipeTask.from_recipe(name, keys, None)
        rows = load_task(task.data)
        least = 9 if keys.get("dataset") in GLUE else 100
        assert all(len(rows.splits[split]) >= least for split in ("train", "validation"))
        heads[name] = task.describe_head(rows)

    assert MinBertConfig(tasks=heads).tasks.keys() == arguments.tasks.keys()


@pytest.mark.slow
def test_a_run_with_few_rows_and_steps_goes_to_the_end(recipe, tasks, tmp_path):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"vocab_size": 400, "intermediate_size": 16, "max_position_embeddings": 512}
    flags = ["--use_cpu", "--max_steps", "4", "--eval_strategy", "steps", "--eval_steps", "2"]
    flags += ["--save_strategy", "steps", "--save_steps", "2", "--model_config", json.dumps(sizes)]
    for keys in tasks.values():
        keys |= {"max_train_samples": 64, "max_eval_samples": 32, "max_test_samples": 32}
        keys.pop("max_train_samples_per_class", None)
    teachers = []
    if parse(recipe)[0].teacher is not None:  # models that the user has trained before
        own = ("teacher", "unlabeled_file", "max_unlabeled_samples")
        plain = {
            name: {key: value for key, value in keys.items() if key not in own}
            for name, keys in tasks.items()
        }
        before = [*flags, "--output_dir", str(tmp_path / "teacher"), "--tasks", json.dumps(plain)]
        finetune.main([str(ROOT / "recipes/cs224n_r_drop.yaml"), *before])
        teachers = ["--teacher", str(tmp_path / "teacher")]

    flags += ["--output_dir", str(tmp_path / "out"), "--tasks", json.dumps(tasks)]
    finetune.main([str(recipe), *flags, *teachers])

    assert (tmp_path / "out/report.html").is_file()
