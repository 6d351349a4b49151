"""A wheel has every package of the sources, and bounds that can be tested."""

import configparser
import re
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


def read_bounds():
    """Read the oldest versions in setup.cfg, by package."""
    setup = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    lines = re.findall(r"^ +([\w-]+)>=([\d.]+)(?:,.*)?$", setup, re.MULTILINE)
    bounds = dict(lines)
    assert len(bounds) == len({*lines})  # a package that is listed twice has one bound
    return bounds


def test_every_dependency_has_an_oldest_version():
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    listed = setup["options"]["install_requires"] + setup["options.extras_require"]["dev"]
    names = re.findall(r"^([\w-]+)(?![\w-]|==)", re.sub(r"#.*", "", listed), re.MULTILINE)

    assert {*names} - {"transformers-mlinter"} == read_bounds().keys() & {*names}
