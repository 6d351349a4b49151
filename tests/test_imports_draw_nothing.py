"""Importing a package changes no random state."""

from tests.processes import run_python

SCRIPT = """
import random, sys
import numpy, torch

random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
before = random.getstate(), repr(numpy.random.get_state()), torch.get_rng_state().tolist()
__import__(sys.argv[1])
after = random.getstate(), repr(numpy.random.get_state()), torch.get_rng_state().tolist()
print([first == second for first, second in zip(before, after)])
"""


def test_an_import_leaves_random_states():
    assert run_python("-c", SCRIPT, "minbert_cli.finetune").stdout == "[True, True, True]\n"
