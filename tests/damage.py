"""Damage to the files of a folder, drawn at random."""

import random
import shutil

import pytest

SLOW = [pytest.param(range(n, n + 100), marks=pytest.mark.slow) for n in range(100, 1300, 100)]
SEEDS = [range(30), *SLOW]  # of damages
KINDS = ("flip", "cut", "empty", "missing", "swapped", "folder", "other JSON", "longer", "zeros")
OTHER_JSON = ("[]", "null", "{}", "3", '"text"', "[" * 5000, '{"a": ' * 3000, "{\x00", "NaN")


def damage(folder, seed):
    """Damage one file of a folder, and return what was done: the file and the kind of damage."""
    draw = random.Random(seed)
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    path, kind = draw.choice(paths), draw.choice(KINDS)
    if kind in ("missing", "folder"):
        path.unlink()
        if kind == "folder":
            path.mkdir()
    elif kind == "swapped":
        other = draw.choice(paths)
        contents = path.read_bytes(), other.read_bytes()
        other.write_bytes(contents[0])
        path.write_bytes(contents[1])
    else:
        path.write_bytes(change(path.read_bytes(), kind, draw))
    return path.relative_to(folder).as_posix(), kind


def change(content, kind, draw):
    """Return other content of a file."""
    place = draw.randrange(max(1, len(content)))
    rest = content[place : place + 1]
    changed = {
        "flip": content[:place] + bytes(byte ^ 1 << draw.randrange(8) for byte in rest)
        + content[place + 1 :],
        "cut": content[:place],
        "empty": b"",
        "other JSON": draw.choice(OTHER_JSON).encode(),
        "longer": content + draw.randbytes(9),
        "zeros": content[:place] + bytes(len(content) - place),
    }  # fmt: skip
    return changed[kind]


def copy(source, target):
    """Copy a folder anew."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    return target
