"""``minbert new``: a recipe for your own labeled rows, with guesses of their columns and type."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from minbert_cli.command_line import to_location, to_path

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
MOST_ROWS = 20_000  # that are read
MOST_CLASSES = 100
SHOWN = 5  # classes in a reason
LONGEST_NAME = 4  # words of a column that is no sentence
MOST_SCORED_CLASSES = 5  # different numbers that may be classes of pairs
# Usual names of columns in lower case; labels in the order in which they are tried.
LABEL_NAMES = (
    *("label", "labels", "class", "classes", "category", "categories", "target", "sentiment"),
    *("similarity", "score", "gold_label", "is_duplicate", "rating", "stars", "topic", "intent"),
    *("tag", "tags", "genre", "genres", "y"),
)
TEXT_PAIRS = (
    *(("sentence1", "sentence2"), ("text1", "text2"), ("question1", "question2")),
    *(("premise", "hypothesis"), ("text_a", "text_b"), ("sentence_a", "sentence_b")),
)
ID = re.compile(r"^$|^(.*_)?(id|index|idx)$")
SCORE_NAMES = ("similarity", "score", "relatedness", "similarity_score")
TOKEN_NAMES = ("tokens", "words")
SEPARATORS = (",", ";", "|")  # between the labels of a row; the first is the default
RANGES = ((0, 1), (0, 5), (1, 5), (0, 10), (0, 100))  # of scores


def make_name(path: str) -> str:
    """Make the name of a task from that of a file, or of its folder if it says nothing."""
    stem = Path(path).name.split(".")[0]
    if stem.lower() in ("train", "data"):
        stem = Path(path).absolute().parent.name
    name = re.sub(r"[^A-Za-z0-9_]+", "_", stem).strip("_")
    return name if re.match("[A-Za-z]", name) else f"task_{name}".strip("_")


def find_splits(paths: Sequence[str]) -> dict[str, str]:
    """Tell by their names which files have validation and test rows; the first has others."""
    files = {"train_file": paths[0]}
    for path in paths[1:]:
        words = {"validation_file": ("valid", "dev"), "test_file": ("test",), "train_file": ("",)}
        stem = Path(path).name.lower()
        key = next(key for key in words if any(word in stem for word in words[key]))
        if key in files:
            raise ValueError(
                f"{path}: is it validation or test data? {files[key]!r} is the {key} already; let "
                "its name have 'dev' or 'test', or add it to the recipe"
            )
        files[key] = path
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
        str | None, typer.Option("--problem_type", help="problem type, as in ordinal")
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
    # imported here, so that --help does not wait for torch
    from datasets_scripts import TaskData
    from minbert_cli.recipe import format_recipe
    from trainers import readable_errors

    with readable_errors("minbert new"):
        files = find_splits(data)
        name = name or make_name(data[0])
        output = output or Path(f"{name}.yaml")
        if output.exists():
            raise ValueError(f"{str(output)!r} exists; name another file with --output")
        if not output.absolute().parent.is_dir():
            raise ValueError(f"the folder {str(output.parent)!r} does not exist; make it first")
        texts = text_columns.split(",") if text_columns else None
        guess = Guess(data[0], texts, label_column, problem_type)
        keys: dict[str, Any] = {"problem_type": guess.problem_type, **files, **guess.keys}
        TaskData.from_recipe(name, keys)  # refuses what cannot be loaded
        run = {"model_name_or_path": MODEL, **guess.run, "output_dir": f"runs/{name}"}
        title = guess.problem_type.replace("_", " ").capitalize()
        lines = [
            f"# {title} of {Path(data[0]).name!r}.",
            *(f"# {reason}" for reason in guess.reasons),
            *(f"# Please check: {doubt}" for doubt in guess.doubts),
            format_recipe({"tasks": {name: keys}, **run}),
        ]
        with output.open("x", encoding="utf-8") as file:  # never over another file
            file.write("\n".join(lines))
    print(f"{output}: {guess.problem_type}, {', '.join(guess.keys.get('text_columns', ()))}")
    print(*(f"  {reason}" for reason in guess.reasons), sep="\n")
    print(*(f"  please check: {doubt}\n" for doubt in guess.doubts), sep="", end="")
    print(f"next: minbert check {output}, then minbert finetune {output}")


class Guess:
    """What the rows of a file suggest for a task; columns and type may be those of the user.

    Raises:
        ValueError: If the columns do not tell; the message names them.
    """

    def __init__(
        self, path: str, texts: list[str] | None, label: str | None, kind: str | None
    ) -> None:
        from datasets_scripts.task_data import ROW_KINDS
        from modeling_minbert import unknown

        self.path, self.texts, self.label, self.kind = path, texts, label, kind
        self.keys: dict[str, Any] = {}  # data keys of the task
        self.run: dict[str, Any] = {}  # further keys of the recipe
        self.reasons: list[str] = []
        self.doubts: list[str] = []
        self.rows = read_rows(path)
        self.columns = list(dict.fromkeys(name for row in self.rows for name in row))
        self.described = f"its columns are {', '.join(map(repr, self.columns))}"
        for flag, columns in (("text_columns", texts or ()), ("label_column", [label])):
            for column in columns:
                if column is not None and column not in self.columns:
                    raise ValueError(f"--{flag}: {path} has no column {column!r}; {self.described}")
        if kind is not None and kind not in ROW_KINDS:
            raise ValueError(unknown("problem_type", kind, ROW_KINDS))
        # types that their columns tell
        shapes = {"question_answering": self.find_questions, "token_classification": self.find_tags}
        for name, find in shapes.items():
            if kind in (None, name) and find():
                self.problem_type = name
                return
        if kind in shapes:
            raise ValueError(f"{path}: no columns fit {kind}; {self.described}")
        self.problem_type = self.find_sentences()

    def list_values(self, column: str) -> list[Any]:
        """Return the values of a column, without missing ones."""
        values = (row.get(column) for row in self.rows)
        return [value for value in values if value is not None and value != ""]

    def count_words(self, column: str) -> float:
        """Return the mean number of words of a column; 0 if its values are no texts."""
        values = self.list_values(column)
        is_text = all(isinstance(value, str) for value in values)
        if not values or not is_text or are_numbers(values):
            return 0.0
        return sum(len(value.split()) for value in values) / len(values)

    def find_questions(self) -> bool:
        """Recognize the columns of SQuAD, or take those of the user."""
        has_names = {"question", "context"} <= set(self.columns)
        if not (has_names or (self.kind and self.texts)):
            return False
        keys = {"text_columns": self.texts, "label_column": self.label}
        self.keys = {key: value for key, value in keys.items() if value}
        self.run = {"max_length": 384}  # a passage beside its question
        self.reasons.append("problem_type: questions and their contexts")
        return True

    def find_tags(self) -> bool:
        """Recognize a list of words with a list of tags of the same length."""
        from datasets_scripts.readers import find_suffix

        if find_suffix(self.path) == ".conll":
            self.reasons.append("problem_type: a CoNLL file has a token and its tag on each line")
            return True
        named = [name for name in self.columns if name.lower() in TOKEN_NAMES]
        words = (self.texts or named or [""])[0]
        lengths = {
            name: [len(row[name]) for row in self.rows if isinstance(row.get(name), list)]
            for name in self.columns
        }
        tags = [name for name in lengths if name != words and lengths[name] == lengths.get(words)]
        tags = [name for name in tags if self.label in (None, name) and any(lengths[name])]
        if not tags:
            return False
        self.keys = {"text_columns": [words], "label_column": tags[0]}
        self.reasons.append(f"problem_type: {words!r} and {tags[0]!r} are lists of equal length")
        if len(tags) > 1:
            self.doubts.append(f"other columns with tags: {', '.join(map(repr, tags[1:]))}")
        return True

    def find_sentences(self) -> str:
        """Find the columns of sentences or pairs, and their problem type."""
        from datasets_scripts.task_data import ROW_KINDS

        if self.kind is None or "label_column" in ROW_KINDS[self.kind].keys:
            self.label = self.label or self.find_label()
        self.keys["text_columns"] = self.find_texts()
        values = [] if self.label is None else self.list_values(self.label)
        if self.label is not None and not values:
            raise ValueError(f"{self.path}: column {self.label!r} is empty; give --label_column")
        for column in self.columns:
            if len(column.split()) > LONGEST_NAME or is_number(column) or column in values:
                self.doubts.append(
                    f"is {column!r} the name of a column? if this line is a row, which is not read "
                    "now, write a line with names before it"
                )
        problem_type = self.kind or self.find_type(str(self.label), values)
        if self.label is not None:
            self.keys["label_column"] = self.label
            self.add_keys(values, ROW_KINDS[problem_type].keys)
        return problem_type

    def find_label(self) -> str:
        """Find the column of the labels: by its name, else the last one with few values."""
        rest = [name for name in self.columns if name not in (self.texts or ())]
        names = {name.lower(): name for name in rest}
        if named := [names[name] for name in LABEL_NAMES if name in names]:
            self.reasons.append(f"label_column: {named[0]!r}, by its name")
            return named[0]
        values = {name: self.list_values(name) for name in rest}
        different = {name: len(set(map(str, values[name]))) for name in rest}
        few = [name for name in rest if 2 <= different[name] <= most_classes(values[name])]
        measures = [
            name
            for name in rest
            if different[name] > 1 and are_numbers(values[name]) and not ID.search(name.lower())
        ]
        if not few and not measures:
            raise ValueError(
                f"{self.path}: no column looks like labels; {self.described}: give --label_column"
            )
        *others, chosen = few or measures
        what = "few different values" if few else "numbers"
        self.reasons.append(f"label_column: {chosen!r}, since it has {what}")
        if others:
            self.doubts.append(f"other columns with {what}: {', '.join(map(repr, others))}")
        return chosen

    def find_texts(self) -> list[str]:
        """Find the one or two columns of texts: by their names, else by their numbers of words."""
        if self.texts:
            return self.texts
        columns = [name for name in self.columns if name != self.label]
        names = {name.lower(): name for name in columns}
        for first, second in TEXT_PAIRS:
            if first in names and second in names:
                pair = [names[first], names[second]]
                self.reasons.append(f"text_columns: {pair[0]!r} and {pair[1]!r}, by their names")
                return pair
        words = {name: self.count_words(name) for name in columns}
        texts = [name for name in columns if words[name] >= 2]
        texts = texts or [name for name in columns if words[name] > 0]
        if not texts:
            raise ValueError(
                f"{self.path}: no column looks like texts; {self.described}: give --text_columns"
            )
        longest = max(texts, key=lambda name: words[name])
        if len(texts) == 2:
            shown = f"{texts[0]!r} and {texts[1]!r}"
            self.reasons.append(f"text_columns: {shown}, the two with sentences")
            self.doubts.append(f"if the rows are no pairs, keep only {longest!r}")
            return texts
        self.reasons.append(f"text_columns: {longest!r}, the column with the longest texts")
        if len(texts) > 1:
            shown = ", ".join(repr(name) for name in texts if name != longest)
            self.doubts.append(f"other columns with texts: {shown}")
        return [longest]

    def find_type(self, label: str, values: Sequence[Any]) -> str:
        """Find the problem type that fits the labels."""
        different = Counter(map(str, values))
        has_numbers = are_numbers(values)
        is_scale = label.lower() in SCORE_NAMES or len(different) > MOST_SCORED_CLASSES
        has_pairs = len(self.keys["text_columns"]) == 2
        separator = find_separator(values)
        if separator is not None:
            what = f"labels separated by {separator!r}" if separator else "lists"
            problem_type, reason = "multi_label_classification", f"{label!r} has {what}"
        elif has_pairs and different.keys() == {"0", "1"}:
            problem_type, reason = "paraphrase", f"pairs of texts, and {label!r} is 0 or 1"
        elif has_pairs and has_numbers and is_scale:
            problem_type, reason = "similarity", f"pairs of texts, and {label!r} has numbers"
        elif len(different) <= most_classes(values):
            names = ", ".join(repr(name) for name, _ in different.most_common(SHOWN))
            reason = f"{label!r} has {len(different)} values, most often {names}"
            problem_type = "classification"
            if len(different) > 2 and has_numbers:
                self.doubts.append(
                    "the labels are numbers, which are learned as names without an order; if they "
                    "are grades, such as stars, write problem_type: ordinal"
                )
        elif has_numbers:
            reason = f"{label!r} has {len(different):,} different numbers"
            problem_type = "regression"
            self.doubts.append("the labels are numbers, whose sizes are learned; are they names?")
        else:
            raise ValueError(
                f"{self.path}: {label!r} has {len(different):,} different values in "
                f"{len(values):,} rows, too many for classes; {self.described}: give --label_column"
            )
        self.reasons.append(f"problem_type: {reason}")
        return problem_type

    def add_keys(self, values: Sequence[Any], keys: Sequence[str]) -> None:
        """Add what a type needs to know of its labels: their separator or range."""
        separator = find_separator(values)
        if "label_separator" in keys and separator and separator != SEPARATORS[0]:
            self.keys["label_separator"] = separator
        if "score_range" in keys:
            if not are_numbers(values):
                raise ValueError(
                    f"column {self.label!r} has values that are no numbers; give --label_column"
                )
            low, high = min(map(float, values)), max(map(float, values))
            usual = [ends for ends in RANGES if ends[0] <= low and high <= ends[1]]
            self.keys["score_range"] = list([*usual, (math.floor(low), math.ceil(high))][0])
            self.doubts.append(
                f"score_range: the scores are from {low:g} to {high:g}; write the range of their "
                "scale"
            )


def read_rows(path: str) -> list[dict[str, Any]]:
    """Read the first rows of a file that are valid."""
    from datasets_scripts.readers import find_suffix, read_records

    suffix = find_suffix(path)
    if suffix == ".conll":
        from datasets_scripts.tagging import read_conll

        records = read_conll(path, ("0", "-1"))
    elif suffix == ".json":  # a single JSON value, or JSON lines
        from datasets_scripts.questions import read_squad

        records = read_squad(path, ())
    else:
        records = read_records(path, ())
    rows = [dict(record.values) for record in islice(records, MOST_ROWS) if not record.problem]
    if not rows:
        raise ValueError(f"{path}: no row can be read")
    return rows


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite number."""
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def are_numbers(values: Sequence[Any]) -> bool:
    """Tell whether all values are finite numbers."""
    return all(map(is_number, values))


def most_classes(values: Sequence[object]) -> int:
    """Return how many different values may be classes."""
    return min(MOST_CLASSES, max(2, len(values) // 2))


def find_separator(values: Sequence[object]) -> str | None:
    """Return what separates several labels of a row, empty for lists; None for one label each.

    Parts of labels occur again in other rows.
    """
    from datasets_scripts.readers import is_list

    if any(isinstance(value, list) or is_list(str(value)) for value in values):
        return ""
    texts = [value for value in values if isinstance(value, str)]
    for separator in SEPARATORS:
        joined = [text for text in texts if separator in text]
        parts = Counter(part.strip() for text in texts for part in text.split(separator))
        repeated = all(parts[part.strip()] > 1 for text in joined for part in text.split(separator))
        if joined and repeated and len(parts) < len(set(texts)):
            return separator
    return None
