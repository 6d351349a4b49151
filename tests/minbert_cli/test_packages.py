"""A wheel has every package of the sources."""

import configparser
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_setup_lists_every_package_of_the_sources():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    listed = setup["options"]["packages"].split()
    tops = {name.split(".")[0] for name in listed}
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for top in tops
        for path in (ROOT / top).rglob("__init__.py")
    }

    assert sorted(listed) == sorted(found)
