"""The token of the Hub: no published recipe has it, however it was given, and no pickle."""

import copy
import io
import pickle

import pytest
import torch

from minbert_cli import read_recipe
from minbert_cli.run import describe_recipe
from trainers.files import HubToken

TOKEN = "hf_aVerySecretToken"  # noqa: S105  not a real one
FORMS = {
    "plain": f"hub_token: {TOKEN}",
    "quoted key": f'"hub_token": {TOKEN}',
    "folded": f"hub_token: >-\n  {TOKEN}",
    "escaped": f'hub_token: "\\x68{TOKEN[1:]}"',
    "alias": f"run_name: &token {TOKEN}\nhub_token: *token",
    "in a comment": f"hub_token: {TOKEN}  # {TOKEN}",
    "tag": f"? !!str hub_token\n: {TOKEN}",
}


@pytest.mark.parametrize("form", FORMS)
def test_no_published_recipe_has_the_token(tmp_path, form):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"seed: 1\n{FORMS[form]}\nmax_length: 8\n")

    text = describe_recipe(read_recipe(recipe), recipe.read_text(), TOKEN)

    assert TOKEN not in text
    assert "max_length: 8" in text


def test_a_recipe_without_token_is_published_as_it_is():
    assert describe_recipe({"seed": 1}, "# why\nseed: 1\n") == "# why\nseed: 1\n"


def test_a_token_is_used_but_neither_pickled_nor_shown():
    token = HubToken(TOKEN)
    file = io.BytesIO()
    torch.save({"hub_token": token}, file)

    assert token == TOKEN
    assert copy.deepcopy({"token": token})["token"] == TOKEN
    assert TOKEN not in repr({"token": token})
    assert TOKEN.encode() not in file.getvalue()
    assert pickle.loads(pickle.dumps(token)) is None  # noqa: S301  written one line above
