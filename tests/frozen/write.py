"""Write the frozen outcomes: ``python -m tests.frozen.write [SECTION[/CASE] ...]``."""

import os
import sys
import tempfile
import traceback
from pathlib import Path

# Libraries read these when they are imported; as in tests/conftest.py
FOLDER = tempfile.TemporaryDirectory(prefix="minbert-frozen-")
for variable in ("HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_ASSETS_CACHE", "HF_MODULES_CACHE"):
    os.environ.pop(variable, None)
os.environ |= {
    "HF_HOME": FOLDER.name,
    "HF_HUB_OFFLINE": "1",
    "COLUMNS": "100",
    "CUDA_VISIBLE_DEVICES": "",
    "MPLBACKEND": "Agg",
    "TOKENIZERS_PARALLELISM": "false",
}
os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.frozen.outcomes import DATA, Workshop, lines_of, read_frozen  # noqa: E402
from tests.frozen.sections import SECTIONS, find_missing  # noqa: E402


def write(asked: list[str]) -> int:
    """Write the sections or cases asked for, or all; others stay. Returns how many failed."""
    failed = 0
    workshop = Workshop(Path(FOLDER.name) / "runs")
    DATA.mkdir(exist_ok=True)
    for section, cases in SECTIONS.items():
        wanted = [
            name for name in cases if not asked or {section, f"{section}/{name}"} & set(asked)
        ]
        if not wanted:
            continue
        lines = []
        for name, case in cases.items():
            try:
                is_wanted = name in wanted and not find_missing(section, name)
                lines += lines_of(name, case, workshop) if is_wanted else read_frozen(section, name)
            except Exception:
                failed += 1
                sys.stderr.write(f"{section}/{name}\n{traceback.format_exc(limit=-4)}\n")
        (DATA / f"{section}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return failed


if __name__ == "__main__":
    with FOLDER:
        sys.exit(min(write(sys.argv[1:]), 1))
