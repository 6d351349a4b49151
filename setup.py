"""The files of the top level that the wheel carries inside ``minbert_cli``.

Everything else is in setup.cfg, which can include only files that lie within a package.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PATTERNS = ("model_card.md", "recipes/**/*.yaml")


class BuildWithResources(build_py):
    """Copies the files beside the code; ``minbert_cli.recipes`` finds them in either place."""

    def run(self) -> None:
        """Build, and copy, unless the install is editable and uses the clone itself."""
        super().run()
        if self.editable_mode:
            return
        for path in (path for pattern in PATTERNS for path in Path().glob(pattern)):
            target = Path(self.build_lib, "minbert_cli", path)
            target.parent.mkdir(parents=True, exist_ok=True)
            self.copy_file(str(path), str(target))


setup(cmdclass={"build_py": BuildWithResources})
