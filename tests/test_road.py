"""What the commands of a first user load: the road, which knows nothing of the lab."""

import json
import re

import grimp
import pytest

from tests import small_run
from tests.processes import ROOT, run_python

# Modules and lines at most, of ours. Raise a number only for what its command cannot do without.
LIMITS = {"finetune": (72, 19_700), "predict": (28, 9_500), "encode": (19, 7_800)}
LAB = (
    "minbert_cli.experiment",
    "minbert_cli.pretrain",
    "minbert_cli.text_tasks",
    "minbert_cli.exporting",
    "datasets_scripts.corpus",
    "datasets_scripts.text_rows",
    "modeling_minbert.joined",
    "trainers.data.masking",
    "trainers.methods.extra_losses",
    "trainers.training.comparisons",
)
# What a prediction needs besides: no library of training, data or pictures.
LIBRARIES = ("datasets", "pyarrow", "sklearn", "matplotlib", "transformers.trainer")
PROBE = """
import atexit, json, sys
from pathlib import Path
from transformers import AutoTokenizer, BertModel

names = json.loads(sys.argv[-3])
by_itself = [name for name in names if name in sys.modules]  # as older versions of transformers do

def write():
    root = sys.argv[-2] + "/"
    files = {getattr(module, "__file__", None) or "": name for name, module in sys.modules.items()}
    mine = [file for file in files if file.startswith(root) and "site-packages" not in file]
    ours = {files[file]: Path(file).read_text("utf-8").count("\\n") for file in mine}
    others = [name for name in names if name in sys.modules and name not in by_itself]
    Path(sys.argv[-1]).write_text(json.dumps([ours, others]))

atexit.register(write)
"""


def list_loaded(code, folder):
    """Return our modules with their lines, and those of `LIBRARIES`, that a process loads."""
    path = folder / "loaded.json"
    sources = [json.dumps(LIBRARIES), str(ROOT), str(path)]
    run_python("-c", PROBE + code, *sources)
    ours, libraries = json.loads(path.read_text())
    return {name: ours[name] for name in ours if not name.startswith(("tests", "setup"))}, libraries


def check_limits(command, loaded):
    """Check the number of modules and of lines that a command has loaded."""
    modules, lines = LIMITS[command]
    assert len(loaded) <= modules, sorted(loaded)
    assert sum(loaded.values()) <= lines, sum(loaded.values())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Fine-tune in a process; returns the model and the modules that were loaded."""
    folder = tmp_path_factory.mktemp("road")
    small_run.write_files(folder)
    recipe = small_run.write_recipe(folder, small_run.make_recipe(folder))
    argv = ["finetune", str(recipe), "--output_dir", str(folder / "run"), "--max_steps", "2"]
    loaded, _ = list_loaded(f"from minbert_cli.__main__ import main; main({argv!r})", folder)
    return folder / "run", loaded


def test_fine_tuning_loads_the_road(trained):
    _, loaded = trained

    assert not [name for name in loaded if name.startswith(LAB)]
    types = ("evaluate_metrics", "labels", "questions", "tags", "text")  # of other tasks
    assert all((ROOT / "trainers/problems" / f"{name}.py").is_file() for name in types)
    assert not {f"trainers.problems.{name}" for name in types} & set(loaded)
    check_limits("finetune", loaded)


def test_a_prediction_loads_little(trained, tmp_path):
    argv = ["predict", str(trained[0]), "--task", "moods", "the garden is fine"]

    loaded, libraries = list_loaded(
        f"from minbert_cli.__main__ import main; main({argv!r})", tmp_path
    )

    assert libraries == []
    assert not [name for name in loaded if name.startswith(LAB)]
    check_limits("predict", loaded)


def test_encoding_loads_the_model_alone(trained, tmp_path):
    code = (
        "from modeling_minbert import MinBertModel; "
        f"MinBertModel.from_pretrained({str(trained[0])!r}).encode(['the garden is fine'])"
    )

    loaded, libraries = list_loaded(code, tmp_path)

    assert libraries == []
    assert all(name.startswith("modeling_minbert") for name in loaded)
    check_limits("encode", loaded)


PACKAGES = ("modeling_minbert", "datasets_scripts", "trainers", "minbert_cli")
PACKAGES += ("minbert_onnx",)
# Drawn apart from the package that they are in.
ROOMS = tuple(f"trainers.{name}" for name in ("data", "problems", "methods", "training", "reports"))


def draw_layers():
    """Draw which rooms import which, as a diagram of Mermaid."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True)

    def find_room(module):
        parents = [room for room in ROOMS if module == room or module.startswith(f"{room}.")]
        return parents[0] if parents else module.split(".")[0]

    below = {}
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            upper, lower = find_room(module), find_room(imported)
            # the modules of a package know its face
            if not upper.startswith(lower) and not lower.startswith(upper):
                below.setdefault(upper, set()).add(lower)

    def reach(room):
        return set().union(*({lower} | reach(lower) for lower in below.get(room, ())))

    # without an arrow where two others lead
    lines = [
        f"    {upper} --> {lower}"
        for upper in sorted(below)
        for lower in sorted(below[upper])
        if not any(lower in reach(other) for other in below[upper])
    ]
    return "\n".join(["```mermaid", "graph TD", *lines, "```"])


def test_the_picture_of_the_layers_is_drawn_from_the_imports():
    picture = draw_layers()
    assert picture in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), picture


def test_every_name_of_the_map_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = re.findall(r"^\| `(\w+)/` \| (.*)", text.partition("## Map")[2], re.MULTILINE)

    assert len(rooms) == len(PACKAGES)
    for package, line in rooms:
        names = set(re.findall(r"`(\w+)/?`", line)) - {"minbert"}
        modules = {path.stem for path in (ROOT / package).rglob("*")}
        assert names <= modules, names - modules


def test_every_name_of_the_walks_exists():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walks = text.partition("## Five walks")[2].partition("## ")[0]
    names = re.findall(r"`([\w/]+\.py):(\w+)`", walks)

    names += [(file, name) for name, file in re.findall(r"`(\w+)` \(`([\w/]+/\w+\.py)`\)", text)]

    assert len(names) > 30
    for file, name in names:
        code = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^ *(def|class) {name}\b|^{name}(:.*)? = ", code, re.MULTILINE), (
            file,
            name,
        )
