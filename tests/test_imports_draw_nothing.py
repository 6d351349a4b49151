"""Importing a package changes no random state."""

import subprocess
import sys

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
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "minbert_cli.finetune"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[True, True, True]\n", done.stderr
