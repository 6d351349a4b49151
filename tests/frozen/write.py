"""Write the frozen outcomes: ``python -m tests.frozen.write [SECTION[/CASE] ...]``."""

import os
import sys
import traceback
from pathlib import Path

# which must be the first, since libraries read its variables when they are imported
from tests import conftest

os.environ |= {"COLUMNS": "100", "CUDA_VISIBLE_DEVICES": ""}

from tests.frozen.outcomes import DATA, Workshop, lines_of, read_frozen
from tests.frozen.sections import SECTIONS, find_missing


def write(asked: list[str]) -> int:
    """Write the sections or cases asked for, or all; others stay. Returns how many failed."""
    failed = 0
    workshop = Workshop(Path(conftest.CACHE) / "runs")
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
    status = min(write(sys.argv[1:]), 1)
    conftest.pytest_unconfigure()
    sys.exit(status)
