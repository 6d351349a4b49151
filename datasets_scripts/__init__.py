"""Rows of tasks and running text, from files, the Hub or built-in samples, and their tokens."""

import lazy_loader

# what `__init__.pyi` lists is imported when it is used
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
