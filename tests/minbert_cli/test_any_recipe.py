"""Whatever a recipe or a flag says, the answer is arguments or one readable error."""

import pytest
from hypothesis import strategies as st

from minbert_cli import FinetuneArguments, ProgramTrainingArguments, fill_arguments, read_recipe
from tests.any_input import attempt, check
from tests.small_run import parse_recipe
from trainers import INPUT_ERRORS

# of transformers, about old names of its arguments
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")

CLASSES = (FinetuneArguments, ProgramTrainingArguments)
# Keys that would start something outside of the arguments themselves.
LEFT_OUT = {"output_dir", "deepspeed", "fsdp", "fsdp_config", "parallelism_config", "tf32", "debug"}
NAMES = sorted(
    name
    for kind in CLASSES
    for name, field in kind.__dataclass_fields__.items()
    if field.init and name not in LEFT_OUT
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 2),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["no", "steps", "epoch", "mean", "true", "null", "1e-5", "~", "-1", "sst"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=5) | SCALARS, inner, max_size=3),
    ),
    max_leaves=6,
)
RECIPES = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=6), VALUES, max_size=4)
FLAGS = st.lists(
    st.sampled_from([f"--{name}" for name in NAMES]) | SCALARS.map(str) | st.text(max_size=6),
    max_size=4,
)
YAML = st.text(st.characters() | st.sampled_from("[]{}:,&*!|>-?#'\"\n %@`a1"), max_size=40)


@check(80, YAML)
def test_any_text_is_a_recipe_or_an_error(tmp_path, text):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))

    recipe, message = attempt(lambda: read_recipe(path), ValueError)

    assert isinstance(recipe, dict) if message is None else str(path) in message


@check(60, RECIPES)
def test_any_recipe_gives_arguments_or_an_error(tmp_path, recipe):
    keys = {"output_dir": str(tmp_path / "run"), "tasks": {"a": {"dataset": "sst"}}} | recipe

    parsed, message = attempt(lambda: fill_arguments(CLASSES, keys, where="recipe"), INPUT_ERRORS)

    assert parsed[0].tasks if message is None else message
    assert not (tmp_path / "run").exists()


@check(40, FLAGS)
def test_any_flags_give_arguments_or_an_error(tmp_path, flags):
    path = tmp_path / "recipe.yaml"
    path.write_text(f"output_dir: {tmp_path / 'run'}\ntasks: {{a: {{dataset: sst}}}}\n")

    parsed, message = attempt(lambda: parse_recipe(CLASSES, [str(path), *flags]), INPUT_ERRORS)

    assert parsed[0].tasks if message is None else message
    assert not (tmp_path / "run").exists()
