"""Multi-task training on top of the Hugging Face Trainer.

The layers from below: ``files``, ``data``, ``problems``, ``task``,
``methods``, ``training``, ``reports`` and ``arguments``; each imports only those before it.
"""

import lazy_loader

# what `__init__.pyi` lists is imported when it is used
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
