"""Predictions and vectors of an ONNX export, by onnxruntime, tokenizers and numpy alone.

    import minbert

    model = minbert.load("onnx")  # written by: minbert export <model> --format onnx
    model.predict("tone", ["What a lovely film."])

How texts become tokens, and rows predictions, is the code of `modeling_minbert`, in its modules
that need neither torch nor transformers.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec

# The folder of `modeling_minbert` as a second package, `minbert_onnx.shared`, whose modules are
# found there as usual. To import the first one would import torch and transformers: its __init__
# registers the models. A folder without an __init__ is a package that runs nothing.
_found = find_spec("modeling_minbert")
_shared = ModuleSpec(f"{__name__}.shared", None, is_package=True)
_shared.submodule_search_locations = list((_found and _found.submodule_search_locations) or ())
sys.modules[_shared.name] = module_from_spec(_shared)

from .model import MinBertOnnx as MinBertOnnx  # noqa: E402 - needs the package
