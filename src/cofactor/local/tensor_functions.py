"""What numpy hands over to arrays on a device (:mod:`cofactor.local.placed`), as functions of tensors.

Arguments are tensors, arrays in memory and numbers, as they come; what comes out is a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cofactor.local.tensors import in_memory, numpy_type, precisely, tensor_of, torch, torch_type

UFUNCS = {
    "absolute": "abs",
    "add": "add",
    "arctanh": "atanh",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
    "divide": "true_divide",
    "equal": "eq",
    "exp": "exp",
    "expm1": "expm1",
    "floor": "floor",
    "floor_divide": "floor_divide",
    "greater": "gt",
    "greater_equal": "ge",
    "invert": "bitwise_not",
    "isfinite": "isfinite",
    "isinf": "isinf",
    "isnan": "isnan",
    "less": "lt",
    "less_equal": "le",
    "log": "log",
    "log1p": "log1p",
    "logical_and": "logical_and",
    "logical_not": "logical_not",
    "logical_or": "logical_or",
    "maximum": "maximum",
    "minimum": "minimum",
    "multiply": "multiply",
    "negative": "neg",
    "not_equal": "ne",
    "positive": "clone",
    "power": "pow",
    "remainder": "remainder",
    "rint": "round",
    "sign": "sign",
    "sqrt": "sqrt",
    "square": "square",
    "subtract": "sub",
}
"""Names of numpy's ufuncs, and of the same functions of torch; ``matmul`` is apart."""
WITH_NUMBERS = {"add", "subtract", "multiply", "divide", "greater", "greater_equal", "less", "less_equal", "equal"}
"""Those that take a plain number second: no tensor is made of it."""
FLOATING = {"divide", "sqrt", "exp", "log", "log1p", "expm1", "arctanh"}
"""Those that make floats of whole numbers."""


def elementwise(
    device: Any,
    ufunc: Any,
    way: str,
    inputs: tuple[Any, ...],
    *,
    out: Any = None,
    where: Any = True,
    dtype: Any = None,
    **how: Any,
) -> Any:
    """Carry out a ufunc, an outer one, or a reduction, with numpy's types; one that is not known, on the host."""
    name = ufunc.__name__
    if way == "reduce":
        return call(device, REDUCED[name], inputs, {"dtype": dtype, **how})
    if way not in ("__call__", "outer") or (name not in UFUNCS and name != "matmul"):
        return getattr(ufunc, way)(*map(_host, inputs), dtype=dtype, **how)
    operands = _alike(device, inputs, dtype, floating=name in FLOATING, numbers=name in WITH_NUMBERS)
    if way == "outer":
        a, b = operands
        operands = [a.reshape(*a.shape, *[1] * b.ndim), b]
    found = precisely(torch().matmul, *operands) if name == "matmul" else vars(torch())[UFUNCS[name]](*operands)
    if out is None:
        return found
    return _written(out[0], found, where, device)


def _written(out: Any, found: Any, where: Any, device: Any) -> Any:
    """Write a result where it was asked for, on either side."""
    if not _is_tensor(out):
        np.copyto(out, found.cpu().numpy(), where=_host(where), casting="same_kind")
        return out
    kept = found if where is True else torch().where(tensor_of(where, device), found, out)
    out.copy_(kept)
    return out


def _alike(
    device: Any, inputs: tuple[Any, ...], dtype: Any = None, *, floating: bool = False, numbers: bool = False
) -> list[Any]:
    """Return operands as tensors of the one type in which numpy would work; with ``numbers`` these stay as they are."""
    first = inputs[0]
    if dtype is None and all(_is_tensor(a) and a.dtype == first.dtype for a in inputs):
        wanted = first.dtype
        if not floating or wanted.is_floating_point:
            return list(inputs)
    found = np.dtype(dtype) if dtype is not None else np.result_type(*map(_typed, inputs))
    if floating and found.kind != "f":
        found = np.dtype(np.float64)
    wanted = torch_type(found)
    if numbers and _is_tensor(first) and first.dtype == wanted and np.ndim(inputs[-1]) == 0:
        return [first, inputs[-1].item() if isinstance(inputs[-1], np.generic) else inputs[-1]]
    return [_operand(a, wanted, device) for a in inputs]


def _is_tensor(a: Any) -> bool:
    return isinstance(a, torch().Tensor)


def _typed(a: Any) -> Any:
    """What numpy needs to know of an operand for the type of a result."""
    if _is_tensor(a):
        return numpy_type(a.dtype)
    return a.dtype if isinstance(a, np.ndarray | np.generic) else a


def _operand(a: Any, wanted: Any, device: Any) -> Any:
    if _is_tensor(a):
        return a.to(wanted)
    if np.ndim(a) == 0:
        return torch().full((), a.item() if isinstance(a, np.generic | np.ndarray) else a, dtype=wanted, device=device)
    return tensor_of(a, device).to(wanted)


def _host(a: Any) -> Any:
    """Return what is given with every array in the memory of the host."""
    if _is_tensor(a):
        return in_memory(a)
    if isinstance(a, tuple | list):
        return type(a)(_host(part) for part in a)
    return a


def call(device: Any, function: Any, args: Any, how: dict[str, Any]) -> Any:
    """Carry out a function of numpy on a device; one that is not known, on the host."""
    if function in MADE:
        found = MADE[function](*args, **{name: value for name, value in how.items() if name != "like"})
        return tensor_of(found, device)
    known = FUNCTIONS.get(function)
    if known is None or how.get("out") is not None:
        return function(*_host(args), **{name: _host(value) for name, value in how.items()})
    return known(device, *args, **{name: value for name, value in how.items() if value is not np._NoValue})


def _one(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of one tensor (and more) one of arrays."""
    return lambda device, a, *args, **how: function(tensor_of(a, device), *args, **how)


def _reduced(name: str) -> Callable[..., Any]:
    """Return a reduction with numpy's arguments."""

    def reduce(device: Any, a: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False, **how: Any) -> Any:
        tensor = tensor_of(a, device)
        dims = tuple(range(tensor.ndim)) if axis is None else axis
        if dtype is not None:
            tensor = tensor.to(torch_type(np.dtype(dtype)))
        if name in ("amax", "amin") and tensor.numel() == 0:
            return torch().full((), how["initial"], dtype=tensor.dtype, device=device)
        if tensor.ndim == 0:
            return tensor.clone() if name not in ("any", "all") else tensor != 0
        found = vars(torch())[name](tensor, dim=dims, keepdim=keepdims)
        if "initial" in how and name in ("amax", "amin"):
            found = found.clamp(**{"min" if name == "amax" else "max": how["initial"]})
        return found

    return reduce


def _where(device: Any, condition: Any, *choices: Any) -> Any:
    if not choices:
        return np.where(_host(condition))
    return torch().where(tensor_of(condition, device), *_alike(device, choices))


def _einsum(device: Any, subscripts: str, *operands: Any, dtype: Any = None, **how: Any) -> Any:
    return precisely(torch().einsum, subscripts, *_alike(device, operands, dtype))


def _norm(device: Any, a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    return torch().linalg.vector_norm(tensor_of(a, device), dim=axis, keepdim=keepdims)


def _vdot(device: Any, a: Any, b: Any) -> Any:
    return torch().sum(torch().mul(*_alike(device, (a, b))))


def _joined(name: str) -> Callable[..., Any]:
    def join(device: Any, parts: Any, axis: int = 0, dtype: Any = None, **how: Any) -> Any:
        return vars(torch())[name](_alike(device, tuple(parts), dtype), dim=axis)

    return join


def _filled(name: str) -> Callable[..., Any]:
    def fill(device: Any, a: Any, *args: Any, dtype: Any = None, shape: Any = None, **how: Any) -> Any:
        more = {} if dtype is None else {"dtype": torch_type(np.dtype(dtype))}
        return vars(torch())[name](tensor_of(a, device), *args, **more)

    return fill


def _argument(name: str) -> Callable[..., Any]:
    return lambda device, a, axis=None, **how: vars(torch())[name](tensor_of(a, device), dim=axis)


def _equal(device: Any, a: Any, b: Any, **how: Any) -> bool:
    return np.shape(a) == np.shape(b) and bool(torch().equal(*_alike(device, (a, b))))


def _clip(device: Any, a: Any, a_min: Any = None, a_max: Any = None, **how: Any) -> Any:
    return tensor_of(a, device).clamp(a_min, a_max)


def _repeat(device: Any, a: Any, repeats: Any, axis: Any = None) -> Any:
    many = repeats if isinstance(repeats, int) else tensor_of(np.asarray(repeats), device)
    return torch().repeat_interleave(tensor_of(a, device), many, dim=axis)


MADE: dict[Any, Callable[..., Any]] = {
    make: make for make in (np.zeros, np.ones, np.empty, np.full, np.eye, np.arange, np.identity)
}
"""Functions that make arrays out of nothing, for ``like=``; few and small enough to be made on the host."""

REDUCED = {"add": np.sum, "maximum": np.max, "minimum": np.min, "logical_and": np.all, "logical_or": np.any}


def _as_array(device: Any, a: Any, dtype: Any = None, **how: Any) -> Any:
    tensor = tensor_of(a, device)
    return tensor if dtype is None else tensor.to(torch_type(np.dtype(dtype)))


def _contiguous(device: Any, a: Any, dtype: Any = None, **how: Any) -> Any:
    return _as_array(device, a, dtype).contiguous()


def _type(device: Any, *operands: Any) -> np.dtype[Any]:
    return np.result_type(*(numpy_type(a.dtype) if _is_tensor(a) else a for a in operands))


def _sorted_by(device: Any, a: Any, axis: int = -1, **how: Any) -> Any:
    return torch().argsort(tensor_of(a, device), dim=axis, stable=True)


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.sum: _reduced("sum"),
    np.mean: _reduced("mean"),
    np.max: _reduced("amax"),
    np.amax: _reduced("amax"),
    np.min: _reduced("amin"),
    np.any: _reduced("any"),
    np.all: _reduced("all"),
    np.where: _where,
    np.einsum: _einsum,
    np.linalg.norm: _norm,
    np.linalg.eigvalsh: lambda device, a: torch().linalg.eigvalsh(a),
    np.linalg.solve: lambda device, a, b: torch().linalg.solve(*_alike(device, (a, b))),
    np.vdot: _vdot,
    np.outer: lambda device, a, b: torch().outer(*(t.reshape(-1) for t in _alike(device, (a, b)))),
    np.stack: _joined("stack"),
    np.concatenate: _joined("concatenate"),
    np.vstack: _joined("concatenate"),
    np.hstack: lambda device, parts: torch().hstack(_alike(device, tuple(parts))),
    np.zeros_like: _filled("zeros_like"),
    np.ones_like: _filled("ones_like"),
    np.empty_like: _filled("empty_like"),
    np.full_like: _filled("full_like"),
    np.argmax: _argument("argmax"),
    np.argmin: _argument("argmin"),
    np.argsort: _sorted_by,
    np.diag: _one(lambda a, k=0: torch().diag(a, k)),
    np.triu: _one(lambda a, k=0: torch().triu(a, k)),
    np.trace: _one(lambda a: torch().trace(a)),
    np.copy: _one(lambda a, **how: a.clone()),
    np.ravel: _one(lambda a, **how: a.reshape(-1)),
    np.transpose: lambda device, a, axes=None: a.permute(*(axes or range(a.ndim - 1, -1, -1))),
    np.reshape: lambda device, a, *shape, **how: a.reshape(*shape, *how.values()),
    np.clip: _clip,
    np.repeat: _repeat,
    np.array_equal: _equal,
    np.asarray: _as_array,
    np.array: _as_array,
    np.ascontiguousarray: _contiguous,
    np.result_type: _type,
    np.shape: lambda device, a: tuple(a.shape),
    np.ndim: lambda device, a: a.ndim,
    np.size: lambda device, a: a.numel(),
}
"""Functions of numpy on tensors; the first argument is the device of those that have none."""
