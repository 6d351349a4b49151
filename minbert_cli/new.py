"""``minbert new``: a recipe for your own labeled rows, with guesses of their columns and type."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from datasets_scripts.readers import find_suffix, is_list, read_records
from minbert_cli.command_line import quick_imports, to_location, to_path

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
MOST_ROWS = 20_000  # that are read
MOST_CLASSES, MOST_CLASSES_OF_PAIRS = 100, 5  # more numbers of pairs are scores
LONGEST_NAME = 4  # words of a column that is no sentence
RANGES = ((0, 1), (0, 5), (1, 5), (0, 10), (0, 100))  # of scores
SCORES = ("similarity", "score", "relatedness", "similarity_score")
# Usual names of columns in lower case; labels in the order in which they are tried.
LABELS = (
    *("label", "labels", "class", "classes", "category", "categories", "target", "sentiment"),
    *("similarity", "score", "gold_label", "is_duplicate", "rating", "stars", "topic", "intent"),
    *("tag", "tags", "genre", "genres", "y"),
)
PAIRS = (("sentence1", "sentence2"), ("question1", "question2"), ("premise", "hypothesis"))
TOKENS = ("tokens", "words", "0")  # the last one in CoNLL files, whose columns have no names
ID = re.compile(r"^$|^(.*_)?(id|index|idx)$")
# The splits of files by a word of their names.
SPLITS = dict.fromkeys(("validation", "valid", "val", "dev"), "validation_file")
SPLITS["test"] = "test_file"
SEPARATORS = (",", ";", "|")  # between the labels of a row; the first is the default


def make_name(path: str) -> str:
    """Make the name of a task from that of a file, or of its folder if it says nothing."""
    from modeling_minbert.tasks import check_name

    stem = Path(path).name.split(".")[0]
    if stem.lower() in ("train", "data"):
        stem = Path(path).absolute().parent.name
    name = re.sub(r"[^A-Za-z0-9_]+", "_", stem).strip("_")
    try:
        return check_name(name)
    except ValueError:
        return f"task_{name[:90]}".strip("_")


def find_splits(paths: Sequence[str]) -> dict[str, str]:
    """Tell by their names which files have validation and test rows; the first has others."""
    files = {"train_file": paths[0]}
    for path in paths[1:]:
        words = re.split(r"[\W\d_]+", Path(path).name.lower())
        keys = {SPLITS[word] for word in words if word in SPLITS}
        if len(keys) != 1 or keys & files.keys():
            raise ValueError(
                f"{path}: is it validation or test data? let its name have one of the words 'dev' "
                "and 'test', which no other file has, as in my-dev.csv, or add it to the recipe"
            )
        files[keys.pop()] = path
    return files


def new(
    data: Annotated[
        list[str],
        typer.Argument(parser=to_location, help="files with rows, those of training first"),
    ],
    output: Annotated[
        Path | None,
        typer.Option(parser=to_path, help="recipe to write, a new file; by default NAME.yaml"),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="name of the task; by default that of the file")
    ] = None,
    text_columns: Annotated[
        str | None,
        typer.Option("--text_columns", help="one or two columns with texts, with a comma between"),
    ] = None,
    label_column: Annotated[
        str | None, typer.Option("--label_column", help="column with labels")
    ] = None,
    problem_type: Annotated[
        str | None, typer.Option("--problem_type", help="problem type, as in regression")
    ] = None,
) -> None:
    """Write a recipe for your own labeled rows.

    \b
    minbert new reviews.csv
    minbert new train.csv dev.csv test.csv --name reviews --output reviews.yaml
    minbert new pairs.tsv --text_columns question1,question2 --label_column same

    It reads the rows (CSV, TSV, JSON, JSON lines, Parquet or CoNLL), guesses the columns with texts
    and labels and the problem type, and says why; flags override each guess. The first file has the
    training rows; others are validation or test rows by their names. Without validation rows, a
    tenth of the training rows is held out.
    """  # noqa: D301  \b keeps the lines of a paragraph
    with quick_imports():
        from datasets_scripts import TaskData
        from minbert_cli.recipe import format_recipe
        from modeling_minbert.tasks import check_name
        from trainers import readable_errors

    with readable_errors("minbert new"):
        files = find_splits(data)
        name = check_name(name) if name else make_name(data[0])
        output = output or Path(f"{name}.yaml")
        if output.exists():
            raise ValueError(f"{str(output)!r} exists; name another file with --output")
        if not output.absolute().parent.is_dir():
            raise ValueError(f"the folder {str(output.parent)!r} does not exist; make it first")
        texts = text_columns.split(",") if text_columns else []
        guess = Guess(data[0], texts, label_column, problem_type)
        keys: dict[str, Any] = {"problem_type": guess.problem_type, **files, **guess.keys}
        TaskData.from_recipe(name, keys)  # refuses what cannot be loaded
        run = {"model_name_or_path": MODEL, **guess.run, "output_dir": f"runs/{name}"}
        with output.open("x", encoding="utf-8") as file:  # never over another file
            file.write(f"# Made by minbert new of {Path(data[0]).name!r}.\n")
            file.writelines(f"# {note}\n" for note in guess.notes)
            file.write(format_recipe({"tasks": {name: keys}, **run}))
    print(f"{output}: {guess.problem_type}, {', '.join(guess.keys.get('text_columns', ()))}")
    splits = [f"{key}: {path!r}, by its name" for key, path in files.items()][1:]
    print(*(f"  {note}" for note in (*splits, *guess.notes)), sep="\n")
    print(f"next: minbert check {output}, then minbert finetune {output}")


class Guess:
    """What the rows of a file suggest for a task; columns and type may be those of the user.

    Raises:
        ValueError: If the columns do not tell; the message names them.
    """

    def __init__(self, path: str, texts: list[str], label: str | None, kind: str | None) -> None:
        from datasets_scripts.task_data import ROW_KINDS
        from modeling_minbert import unknown

        self.path, self.texts, self.label, self.kind = path, texts, label, kind
        self.known = ROW_KINDS
        self.columns = read_columns(path)
        self.described = f"its columns are {', '.join(map(repr, self.columns))}"
        given = [("text_columns", name) for name in texts] + [("label_column", label)]
        for flag, column in given:
            if column is not None and column not in self.columns:
                raise ValueError(f"--{flag}: {path} has no column {column!r}; {self.described}")
        if kind is not None and kind not in ROW_KINDS:
            raise ValueError(unknown("problem_type", kind, ROW_KINDS))
        if kind is not None and "label_columns" in ROW_KINDS[kind].required:
            raise ValueError(f"--problem_type {kind}: write its recipe by hand, with label_columns")
        self.keys: dict[str, Any] = {}  # data keys of the task
        self.run: dict[str, Any] = {}  # further keys of the recipe
        self.notes: list[str] = []  # reasons, and what the user should check
        # types that their columns tell
        shapes = {"question_answering": self.find_questions, "token_classification": self.find_tags}
        fitting = [name for name, find in shapes.items() if kind in (None, name) and find()]
        if kind in shapes and not fitting:
            raise ValueError(f"{path}: no columns fit {kind}; {self.described}")
        self.problem_type: str = fitting[0] if fitting else self.find_sentences()

    def find_questions(self) -> bool:
        """Recognize the columns of SQuAD, or take those of the user."""
        if not {"question", "context"} <= self.columns.keys() and not (self.kind and self.texts):
            return False
        keys = {"text_columns": self.texts, "label_column": self.label}
        self.keys = {key: value for key, value in keys.items() if value}
        self.run = {"max_length": 384}  # a passage beside its question
        self.notes.append("problem_type: questions and their contexts")
        return True

    def find_tags(self) -> bool:
        """Recognize a list of words with a list of tags of the same length."""
        lengths = {
            name: [len(value) for value in values if isinstance(value, list)]
            for name, values in self.columns.items()
        }
        for words in self.texts or [name for name in lengths if name.lower() in TOKENS]:
            tags = [
                name
                for name in ([self.label] if self.label else lengths)
                if words != name and any(lengths[name]) and lengths[name] == lengths[words]
            ]
            if tags:
                self.keys = {"text_columns": [words], "label_column": tags[0]}
                self.notes.append(f"problem_type: {words!r} and {tags[0]!r} have equal lengths")
                if others := ", ".join(map(repr, tags[1:])):
                    self.notes.append(f"please check: other columns with tags: {others}")
                return True
        return False

    def find_sentences(self) -> str:
        """Find the columns of sentences or pairs, and their problem type."""
        from datasets_scripts.checking import errors_of
        from datasets_scripts.row_format import name_label

        if self.kind is None or "label_column" in self.known[self.kind].keys:
            self.label = self.label or self.find_label()
        self.keys["text_columns"] = self.texts or self.find_texts()
        if self.label is None:
            return str(self.kind)
        values = self.columns[self.label]
        if not values:
            raise ValueError(f"{self.path}: column {self.label!r} is empty; give --label_column")
        with errors_of(f"{self.path}: column {self.label!r}"):  # no names, as spaCy's cats
            for value in values:
                list(map(name_label, value if isinstance(value, list) else [value]))
        for name in self.columns:
            if len(name.split()) > LONGEST_NAME or are_numbers([name]) or name in values:
                self.notes.append(
                    f"please check: is {name!r} the name of a column? if this line is a row, which "
                    "is not read now, write a line with names before it"
                )
        problem_type = self.kind or self.find_type(values)
        self.keys["label_column"] = self.label
        keys, separator = self.known[problem_type].keys, find_separator(values)
        if "label_separator" in keys and separator in SEPARATORS[1:]:
            self.keys["label_separator"] = separator
        if "score_range" in keys:
            if not are_numbers(values):
                raise ValueError(
                    f"column {self.label!r} has values that are no numbers; give --label_column"
                )
            low, high = min(map(float, values)), max(map(float, values))
            usual = [ends for ends in RANGES if ends[0] <= low and high <= ends[1]]
            self.keys["score_range"] = list([*usual, (math.floor(low), math.floor(high) + 1)][0])
            self.notes.append("please check: score_range should be the range of the scale")
        return problem_type

    def find_label(self) -> str:
        """Find the column of the labels: by its name, else the last one with few values."""
        rest = {name: self.columns[name] for name in self.columns if name not in self.texts}
        names = {name.lower(): name for name in rest}
        if named := [names[name] for name in LABELS if name in names]:
            self.notes.append(f"label_column: {named[0]!r}, by its name")
            return named[0]
        counts = {name: len(set(map(str, values))) for name, values in rest.items()}
        few = [name for name in rest if 2 <= counts[name] <= most_classes(rest[name])]
        few = [name for name in few if not ID.search(name.lower())]
        numbers = [name for name in rest if counts[name] > 1 and are_numbers(rest[name])]
        fitting = few or [name for name in numbers if not ID.search(name.lower())]
        if not fitting:
            raise ValueError(
                f"{self.path}: no column looks like labels; {self.described}: give --label_column, "
                "or for pairs without labels --problem_type contrastive"
            )
        what = "few different values" if few else "numbers"
        self.notes.append(f"label_column: {fitting[-1]!r}, since it has {what}")
        if others := ", ".join(map(repr, fitting[:-1])):
            self.notes.append(f"please check: other columns with {what}: {others}")
        return fitting[-1]

    def find_texts(self) -> list[str]:
        """Find the one or two columns of texts: by their names, else by their numbers of words."""
        rest = [name for name in self.columns if name != self.label and not self.names_labels(name)]
        words = {name: count_words(self.columns[name]) for name in rest}
        lower = {name.lower(): name for name in rest}
        named = next(([lower[a], lower[b]] for a, b in PAIRS if {a, b} <= {*lower}), [])
        texts = named or [name for name in rest if words[name] >= 2]
        texts = texts or [name for name in rest if words[name] > 0]
        if not texts:
            raise ValueError(
                f"{self.path}: no column looks like texts; {self.described}: give --text_columns"
            )
        longest = max(texts, key=words.__getitem__)
        if len(texts) == 2:
            reason = "by their names" if texts == named else "the two with sentences"
            self.notes.append(f"text_columns: {texts[0]!r} and {texts[1]!r}, {reason}")
            if texts != named:
                self.notes.append(f"please check: if the rows are no pairs, keep only {longest!r}")
            return texts
        self.notes.append(f"text_columns: {longest!r}, the column with the longest texts")
        if others := ", ".join(repr(name) for name in texts if name != longest):
            self.notes.append(f"please check: other columns with texts: {others}")
        return [longest]

    def names_labels(self, column: str) -> bool:
        """Tell whether a column has another name for every label, as ``label_text`` may."""
        labels = [*map(str, self.columns.get(str(self.label), ()))]
        names = [*map(str, self.columns[column])]
        if len(labels) != len(names):
            return False
        pairs = {*zip(labels, names, strict=True)}
        return len(pairs) == len({*labels}) == len({*names}) <= len(labels) / 2

    def find_type(self, values: Sequence[Any]) -> str:
        """Find the problem type that fits the labels, by the first rule that holds."""
        different = Counter(map(str, values))
        has_numbers, count = are_numbers(values), len(different)
        has_pairs, separator = len(self.keys["text_columns"]) == 2, find_separator(values)
        rules = {
            "multi_label_classification": separator is not None,
            "paraphrase": has_pairs and different.keys() == {"0", "1"},
            "similarity": has_pairs
            and has_numbers
            and (str(self.label).lower() in SCORES or count > MOST_CLASSES_OF_PAIRS),
            "classification": count <= most_classes(values),
            "regression": has_numbers,
        }
        found = next((name for name, holds in rules.items() if holds), None)
        if found is None:
            what = f"{count:,} different values in {len(values):,} rows, too many for classes"
            raise ValueError(
                f"{self.path}: {self.label!r} has {what}; {self.described}: give --label_column"
            )
        often = ", ".join(repr(name) for name, _ in different.most_common(5))
        has = f"{count:,} different values, most often {often}"
        if separator is not None:
            has = f"labels separated by {separator!r}" if separator else "lists"
        self.notes.append(f"problem_type: {self.label!r} has {has}")
        if has_numbers and count > 2 and found == "classification":
            self.notes.append(
                "please check: if these are grades, add metrics: [accuracy, mae, "
                "quadratic_weighted_kappa]"
            )
        elif found == "regression":
            self.notes.append("please check: sizes of the numbers are learned; are they names?")
        return found


def read_columns(path: str) -> dict[str, list[Any]]:
    """Read the first valid rows of a file; return the values of its columns but missing ones."""
    from datasets_scripts.questions import read_squad
    from datasets_scripts.tagging import read_conll

    if (suffix := find_suffix(path)) == ".conll":
        records = read_conll(path, ("0", "-1"))
    else:  # JSON is a single value, or lines
        records = read_squad(path, ()) if suffix == ".json" else read_records(path, ())
    read = list(islice(records, MOST_ROWS))
    rows = [record.values for record in read if not record.problem]
    if not rows:
        first = next((f"; line {record.line}: {record.problem}" for record in read), "")
        raise ValueError(f"{path}: no row can be read{first}")
    return {
        name: [row[name] for row in rows if row.get(name) not in (None, "")]
        for name in dict.fromkeys(name for row in rows for name in row)
    }


def are_numbers(values: Sequence[Any]) -> bool:
    """Tell whether all values are finite numbers."""
    try:
        return all(math.isfinite(float(value)) for value in values)
    except (TypeError, ValueError):
        return False


def count_words(values: Sequence[Any]) -> float:
    """Return the mean number of words of the values of a column; 0 if they are no texts."""
    if are_numbers(values) or not all(isinstance(value, str) for value in values):
        return 0.0
    return sum(len(value.split()) for value in values) / len(values)


def most_classes(values: Sequence[object]) -> int:
    """Return how many different values may be classes."""
    return min(MOST_CLASSES, max(2, len(values) // 2))


def find_separator(values: Sequence[object]) -> str | None:
    """Return what separates several labels of a row, empty for lists; None for one label each."""
    if any(isinstance(value, list) or is_list(str(value)) for value in values):
        return ""
    texts = [value for value in values if isinstance(value, str)]
    for separator in SEPARATORS:
        parts = Counter(part.strip() for text in texts for part in text.split(separator))
        if any(separator in text for text in texts) and len(parts) < len(set(texts)):
            return separator  # since rows share parts
    return None
