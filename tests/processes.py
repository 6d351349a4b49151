"""Python in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# That of the tests, where this checkout is the package
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def run_python(*words, folder=ROOT, environment=ENVIRONMENT, status=0):
    """Run Python in a folder, check its exit status unless this is None, and return the process."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert status is None or done.returncode == status, done.stderr[-3000:]
    return done
