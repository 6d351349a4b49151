"""What users can see is as it was frozen; see ``tests/frozen/README.md``."""

import pytest

from tests.frozen.outcomes import Workshop, compare, lines_of, read_frozen
from tests.frozen.sections import SECTIONS, find_missing, is_slow

CASES = [
    pytest.param(section, name, marks=[pytest.mark.slow] * is_slow(section, name))
    for section, cases in SECTIONS.items()
    for name in cases
]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    return Workshop(tmp_path_factory.mktemp("frozen") / "runs")


@pytest.fixture(autouse=True)
def width_of_help(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize(("section", "name"), CASES)
def test_outcomes_are_as_frozen(workshop, section, name):
    if missing := find_missing(section, name):
        pytest.skip(missing)
    found = lines_of(name, SECTIONS[section][name], workshop)

    differences = compare(read_frozen(section, name), found)
    command = f"python -m tests.frozen.write '{section}/{name}'"
    if differences:
        pytest.fail(
            f"{len(differences)} differences; if they are meant: {command}\n"
            + "\n".join(differences),
            pytrace=False,
        )
