"""Configuration of Sphinx: `make docs` builds the site into docs/_build/html."""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from generate import write_tables  # noqa: E402

project = "minBERT"
author = "the minBERT developers"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
exclude_patterns = ["_build", "_generated"]
language = "en"
html_theme = "furo"
html_title = "minBERT"
html_static_path = ["_static"]
html_css_files = ["site.css"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nitpicky = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_google_docstring = True
suppress_warnings = ["autosectionlabel.*"]


def setup(app: Any) -> None:
    """Write the generated tables before the pages are read."""
    app.connect("builder-inited", lambda _: write_tables(ROOT / "docs" / "_generated"))
