"""Multi-task training on top of the Hugging Face Trainer.

The layers from below: ``options``, ``files``, ``data``, ``problems``, ``task``,
``methods``, ``training``, ``reports`` and ``arguments``; each imports only those before it.
"""

import lazy_loader

from . import random_imports  # noqa: F401  before all that import rich

# what `__init__.pyi` lists is imported when it is used
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
