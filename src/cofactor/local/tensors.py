"""Tensors of torch beside arrays of numpy: types of one in the other, and the way from memory to a device and back.

torch is imported when somebody has a tensor or asks for a device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from cofactor.types import Array

departures = {"arrays": 0, "bytes": 0}
"""Arrays, and bytes of them, that have left a device since the start of the process; scalars are not counted."""


@cache
def torch() -> Any:
    """Return the module, once; whoever has a tensor has it."""
    import torch as module

    return module


@cache
def numpy_type(dtype: Any) -> np.dtype[Any]:
    """Return numpy's type of a type of torch."""
    return np.dtype(str(dtype).removeprefix("torch."))


@cache
def stored_type(dtype: Any) -> np.dtype[Any]:
    """Return numpy's type of what tensors of a type hold: float32 of the narrow ones that numpy does not know."""
    lacking = dtype.is_floating_point and dtype not in (torch().float16, torch().float32, torch().float64)
    return np.dtype(np.float32) if lacking else numpy_type(dtype)


def numbers(tensor: Any) -> Array:
    """Return a tensor in memory as the array that shares it; of types that numpy does not know, as float32."""
    return (tensor if not tensor.is_floating_point() else tensor.to(torch_type(stored_type(tensor.dtype)))).numpy()


@cache
def torch_type(dtype: Any) -> Any:
    """Return torch's type of a type of numpy."""
    return vars(torch())[np.dtype(dtype).name]


def tensor_of(a: Any, device: Any = None) -> Any:
    """Return an array as a tensor on a device; one that is there is not copied, and nobody waits for it."""
    if isinstance(a, torch().Tensor):
        return a
    host = np.ascontiguousarray(a)
    shared = torch().from_numpy(host if host.flags.writeable else host.copy())
    return shared.reshape(np.shape(a)).to(device, non_blocking=True)


def in_memory(tensor: Any) -> Array:
    """Return a tensor as an array, and count it, on the device that is this CPU too: there a test can see it."""
    if tensor.ndim:
        departures["arrays"] += 1
        departures["bytes"] += tensor.numel() * tensor.element_size()
    return tensor.detach().cpu().numpy()


def precisely(product: Callable[..., Any], *operands: Any) -> Any:
    """Return a product in full precision: TF32, where it is allowed, is for the data and not for grams."""
    knob = torch().backends.cuda.matmul
    if not (knob.allow_tf32 and operands[-1].is_cuda):
        return product(*operands)
    knob.allow_tf32 = False
    try:
        return product(*operands)
    finally:
        knob.allow_tf32 = True


def narrow_product(A: Any, B: Any) -> Any:
    """``A B`` in float32 of bfloat16 (also of float32, where there is no device that multiplies bfloat16 into it)."""
    if A.is_cuda:
        return torch().mm(A, B, out_dtype=torch().float32)
    return A.float() @ B.float()
