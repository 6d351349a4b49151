"""Fetch the model tests of the installed transformers and print the folder that holds them.

The wheel does not carry them, the source distribution does. They are downloaded once, kept in
``.cache`` as the package ``transformers_tests``, and never become part of this project.
"""

import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "conformance"

# What the tests import and the source distribution leaves out: mixins for generation and export,
# which an encoder does not have, and the values that ConfigTester sets.
STUBS = {
    "exporters/test_export.py": "class ExportTesterMixin:\n    pass\n",
    "generation/test_utils.py": "class GenerationTesterMixin:\n    pass\n",
    "utils/test_configuration_utils.py": """\
config_common_kwargs = {
    "return_dict": False,
    "output_hidden_states": True,
    "output_attentions": True,
    "dtype": "float16",
    "chunk_size_feed_forward": 5,
    "architectures": ["BertModel"],
    "id2label": {0: "label"},
    "label2id": {"label": "0"},
    "problem_type": "regression",
}
""",
}


def download(package: str, folder: Path) -> Path:
    """Download the source distribution of ``package`` (``name==version``) and return its path.

    Raises:
        SystemExit: If the package index cannot be reached or has no such file.
    """
    name = package.partition("==")[0]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", name, package]
    done = subprocess.run([*command, "--dest", folder], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"{done.stderr.strip()}\n\ncould not download the source distribution of {package}; "
            "`make conformance` needs the package index once: try again with a network"
        )
    return next(folder.glob("*.tar.gz"))


def unpack(archive: Path, folder: Path) -> None:
    """Write the top-level test modules of ``archive``, and the stubs, as a package."""
    for path, text in STUBS.items():
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_text(text)
        (folder / path).with_name("__init__.py").touch()
    (folder / "__init__.py").touch()
    with tarfile.open(archive) as tar:
        for member in tar:
            path = Path(member.name)
            if member.isfile() and path.parts[1:] == ("tests", path.name):
                (folder / path.name).write_bytes(tar.extractfile(member).read())


def main() -> None:
    """Print the folder to put on ``PYTHONPATH``; download first if it is not there."""
    package = f"transformers=={version('transformers')}"
    folder = CACHE / package
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as temporary:
            unpacked = Path(temporary) / "unpacked"
            unpack(download(package, Path(temporary)), unpacked / "transformers_tests")
            unpacked.rename(folder)  # all or nothing
    print(folder)


if __name__ == "__main__":
    main()
