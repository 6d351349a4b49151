# Copyright 2026 The minBERT authors. All rights reserved.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Whether a tensor is computed with, or only followed."""

from typing import Any

import torch
from transformers.utils.import_utils import is_tracing


def is_followed(tensor: Any) -> bool:
    """Tell whether torch traces or transforms the program (compile, export, `torch.func`).

    What depends on the values of a tensor, and functions with a backward of their own, are not for
    that.
    """
    return is_tracing(tensor) or torch._C._are_functorch_transforms_active()
