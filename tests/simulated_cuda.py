"""A simulated CUDA device: CPU tensors that Python code sees on ``cuda:0``.

Every operation runs twice. Once on the CPU, so that results have values and the autograd engine
works. Once under PyTorch's ``FakeTensorMode`` with the operands on ``cuda:0``, which raises for
operands on different devices and predicts the device and shape of each result; the shape must be
that of the CPU. Attention kernels that only CUDA has are computed by a loop over the sequences.

This checks where tensors live, what shapes they have and which branch the code takes for CUDA. It
says nothing about the kernels, their precision or speed, streams, memory or autocast.
"""

from collections import Counter
from contextlib import contextmanager

import torch
from accelerate.state import PartialState
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tests.simulated_kernels import KERNELS

CUDA, CPU = torch.device("cuda:0"), torch.device("cpu")
FAKE = FakeTensorMode()
# operations whose result the CPU waits for
WAITS: Counter[str] = Counter()
OPS = torch.ops.aten


class CudaTensor(Tensor):
    """A tensor on the simulated device, with its values in a plain tensor.

    For C++ it is on the device ``meta``, so that tensors that C++ makes beside it, which arrive
    here as operations without operands, can be told from those of the CPU.
    """

    values: Tensor
    device = CUDA
    is_cuda = True
    is_meta = False

    @staticmethod
    def __new__(cls, values):
        layout = {"strides": values.stride(), "storage_offset": values.storage_offset()}
        made: CudaTensor = Tensor._make_wrapper_subclass(
            cls, values.size(), **layout, dtype=values.dtype, device="meta"
        )
        made.values = values
        return made

    def __repr__(self, **kwargs):
        return f"CudaTensor({self.values})"

    def get_device(self):
        return 0

    def tolist(self):
        return self.cpu().tolist()

    def untyped_storage(self):
        return self.values.untyped_storage()

    def __reduce_ex__(self, protocol):
        return self.values.__reduce_ex__(protocol)

    def data_ptr(self):
        return self.values.data_ptr()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


def _run(func, args, kwargs):
    """Run an operation on the values, and check devices and shapes with fake tensors."""
    if func is OPS._to_copy.default and _is(kwargs.get("device"), "cpu"):
        WAITS[str(func)] += 1
    expected = _expect(func, args, kwargs)
    given = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, CudaTensor)]
    values = tree_map(_value, (args, kwargs))
    results = KERNELS.get(func, func)(*values[0], **values[1])
    owners = {id(tensor.values): tensor for tensor in given}  # of operations in place
    leaves, spec = tree_flatten(results)
    fakes = [None] * len(leaves) if expected is None else tree_flatten(expected)[0]
    places = [_place(func, *pair, owners) for pair in zip(leaves, fakes, strict=True)]
    return tree_unflatten(places, spec)


def _place(func, result, fake, owners):
    """Return a result on the device that the fake one predicts."""
    if not isinstance(result, Tensor):
        return result
    if isinstance(fake, Tensor):
        assert result.shape == fake.shape, f"{func}: {result.shape} here, {fake.shape} on CUDA"
        if fake.device.type == "cpu":
            return result
    return owners[id(result)] if id(result) in owners else CudaTensor(result)


def _expect(func, args, kwargs):
    """Return fake results on the device of real ones, None where they cannot be predicted."""
    args, kwargs = tree_map(_fake, (args, kwargs))
    try:
        with FAKE:
            return func(*args, **kwargs)
    except (DynamicOutputShapeException, DataDependentOutputException):
        WAITS[str(func)] += 1
    except RuntimeError as error:
        if "not linked with support for cuda" not in str(error):
            raise
        # a decomposition called C++, which has no CUDA here: compare the devices only
        FakeTensor._find_common_device(func, tree_flatten((args, kwargs))[0])
    return None


def _is(leaf, kind):
    return isinstance(leaf, torch.device) and leaf.type == kind


def _fake(leaf):
    if not isinstance(leaf, Tensor):
        return CUDA if _is(leaf, "meta") else leaf
    layout = (leaf.shape, leaf.stride())
    meta = torch.empty_strided(*layout, dtype=leaf.dtype, device="meta")
    return FakeTensor(FAKE, meta, CUDA if isinstance(leaf, CudaTensor) else CPU)


def _value(leaf):
    if isinstance(leaf, CudaTensor):
        return leaf.values
    assert not isinstance(leaf, Tensor) or leaf.device.type == "cpu", "C++ made it without values"
    return CPU if _is(leaf, "meta") else leaf


class _Operations(TorchDispatchMode):
    """Run what C++ makes or copies to ``meta`` on the simulated device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        leaves = tree_flatten((args, kwargs))[0]
        if any(isinstance(leaf, CudaTensor) or _is(leaf, "meta") for leaf in leaves):
            return _run(func, args, kwargs)
        return func(*args, **kwargs)


class _Devices(TorchFunctionMode):
    """Say ``meta`` to C++ where Python says ``cuda``."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is Tensor.cuda:
            return args[0].to("meta")
        if func is Tensor.to and len(args) > 1 and isinstance(args[1], CudaTensor):
            return args[0].to("meta", args[1].dtype)
        if func is Tensor.to:
            args = (args[0], *map(_meta, args[1:]))
        if func in (torch.tensor, torch.as_tensor) and "device" in kwargs:
            device = kwargs.pop("device")  # C++ would copy the data without a dispatch
            return func(*args, **kwargs).to(_meta(device))
        if func in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[1], list):
            args = (args[0], torch.tensor(args[1]).to(_meta(args[0].device)), *args[2:])
        return func(*args, **{k: _meta(v) if k == "device" else v for k, v in kwargs.items()})


def _meta(value):
    is_cuda = isinstance(value, str | torch.device) and torch.device(value).type == "cuda"
    return torch.device("meta") if is_cuda else value


@contextmanager
def simulated_cuda():
    """Simulate a CUDA device; gives the operations on which the CPU had to wait for it."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    # otherwise Module.to would put values of the simulated device into plain parameters
    torch.__future__.set_swap_module_params_on_conversion(True)
    WAITS.clear()
    try:
        with _Operations(), _Devices():
            yield WAITS
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def use_cuda(args):
    """Stand for ``TrainingArguments._setup_devices`` on a machine with one GPU."""
    args._n_gpu = 1
    args.distributed_state = PartialState(cpu=True)
    args.distributed_state.device = CUDA
    return CUDA
