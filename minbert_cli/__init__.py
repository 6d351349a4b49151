"""The programs of minBERT: fine-tuning, pre-training, prediction, export and experiments."""

import os
import sys
from pathlib import Path

import lazy_loader

# `python -m minbert_cli.finetune` searches the working folder for modules, as `minbert` does not:
# in the folder of a run, the copy of the model's code there would be imported, or refuse to be.
if sys.argv[:1] == ["-m"]:
    here = Path.cwd()
    if here != Path(__file__).resolve().parent.parent:
        sys.path[:] = [path for path in sys.path if Path(path or os.curdir).absolute() != here]

# what `__init__.pyi` lists is imported when it is used
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
