"""Arrays on a device: torch tensors that answer to numpy's own protocols, so that no method knows where it runs.

numpy hands its functions over to arrays that ask for it (NEP 13: ``__array_ufunc__``; NEP 18: ``__array_function__``;
NEP 35: ``like=``). A method that is written in numpy therefore runs on a device as it stands, server side included:
what comes out of an operation stays where its operands are, in the type that numpy would give it. What numpy hands over
and :mod:`cofactor.local.tensor_functions` does not know is computed on the host, and counted
(:data:`cofactor.local.tensors.departures`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cofactor.local import tensor_functions
from cofactor.local.tensors import in_memory, numpy_type, tensor_of, torch, torch_type
from cofactor.types import Array


class Placed(np.lib.mixins.NDArrayOperatorsMixin):
    """An array whose numbers are a torch tensor, on whatever device it is; it behaves as numpy's do."""

    __slots__ = ("tensor",)
    __array_priority__ = 1000.0

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The sides."""
        return tuple(self.tensor.shape)

    @property
    def ndim(self) -> int:
        """How many sides."""
        return self.tensor.ndim

    @property
    def size(self) -> int:
        """How many numbers."""
        return self.tensor.numel()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers, as numpy calls it."""
        return numpy_type(self.tensor.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers."""
        return self.tensor.numel() * self.tensor.element_size()

    @property
    def T(self) -> Placed:
        """The transpose, of the same memory."""
        return Placed(self.tensor.permute(*range(self.tensor.ndim - 1, -1, -1)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = in_memory(self.tensor)
        return found if dtype is None else found.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: Any, way: str, *inputs: Any, **how: Any) -> Any:
        if not how:
            bare = tuple(a.tensor if isinstance(a, Placed) else a for a in inputs)
            return _dressed(tensor_functions.elementwise(self.tensor.device, ufunc, way, bare))
        out = how.get("out")
        found = tensor_functions.elementwise(self.tensor.device, ufunc, way, _bare(inputs), **_bare_all(how))
        return out[0] if out is not None else _dressed(found)

    def __array_function__(self, function: Any, types: Any, args: Any, how: Any) -> Any:
        return _dressed(tensor_functions.call(self.tensor.device, function, _bare(args), _bare_all(how)))

    def __getitem__(self, key: Any) -> Placed:
        return Placed(self.tensor[self._key(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(value, int | float | bool):
            value = tensor_of(_bare(value), self.tensor.device).to(self.tensor.dtype)
        self.tensor[self._key(key)] = value

    def _key(self, key: Any) -> Any:
        if isinstance(key, tuple):
            return tuple(self._key(part) for part in key)
        if isinstance(key, np.ndarray | Placed | list):
            return tensor_of(_bare(key) if isinstance(key, Placed) else key, self.tensor.device)
        return int(key) if isinstance(key, np.integer) else key

    def __len__(self) -> int:
        return len(self.tensor)

    def __iter__(self) -> Iterator[Placed]:
        return (Placed(part) for part in self.tensor)

    def __float__(self) -> float:
        return float(self.tensor)

    def __int__(self) -> int:
        return int(self.tensor)

    def __index__(self) -> int:
        return int(self.tensor)

    def __bool__(self) -> bool:
        return bool(self.tensor)

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        return f"Placed({self.tensor!r})"

    def __reduce__(self) -> Any:
        return np.asarray, (np.asarray(self),)  # another process gets it in its own memory

    def astype(self, dtype: Any, *, copy: bool = True, order: str = "K") -> Placed:
        """Convert."""
        wanted = torch_type(np.dtype(dtype))
        return self if not copy and wanted == self.tensor.dtype else Placed(self.tensor.to(wanted, copy=copy))

    def copy(self, order: str = "C") -> Placed:
        """Copy; the order in memory stays."""
        return Placed(self.tensor.clone())

    def item(self) -> Any:
        """Return the one number."""
        return self.tensor.item()

    def tolist(self) -> Any:
        """Return lists of numbers."""
        return np.asarray(self).tolist()

    def reshape(self, *shape: Any) -> Placed:
        """Return the same numbers in another shape."""
        return Placed(self.tensor.reshape(*shape))

    def transpose(self, *axes: Any) -> Placed:
        """Return the sides in another order."""
        order = axes[0] if axes and isinstance(axes[0], tuple | list) else axes
        return Placed(self.tensor.permute(*order)) if order else self.T

    def ravel(self) -> Placed:
        """Return the numbers in one row."""
        return Placed(self.tensor.reshape(-1))

    def sum(self, axis: Any = None, **how: Any) -> Placed:
        """Add up."""
        return np.sum(self, axis, **how)

    def mean(self, axis: Any = None, **how: Any) -> Placed:
        """Return the mean."""
        return np.mean(self, axis, **how)

    def max(self, axis: Any = None, **how: Any) -> Placed:
        """Return the largest."""
        return np.max(self, axis, **how)

    def min(self, axis: Any = None, **how: Any) -> Placed:
        """Return the smallest."""
        return np.min(self, axis, **how)

    def any(self, axis: Any = None, **how: Any) -> Placed:
        """Whether any is not 0."""
        return np.any(self, axis, **how)

    def all(self, axis: Any = None, **how: Any) -> Placed:
        """Whether none is 0."""
        return np.all(self, axis, **how)


def _bare(a: Any) -> Any:
    """Return what is given with tensors in the place of arrays on a device."""
    if isinstance(a, Placed):
        return a.tensor
    return type(a)(_bare(part) for part in a) if isinstance(a, tuple | list) else a


def _bare_all(how: dict[str, Any]) -> dict[str, Any]:
    return {name: _bare(value) for name, value in how.items()}


def _dressed(found: Any) -> Any:
    return Placed(found) if isinstance(found, torch().Tensor) else found


def placed(a: Any, device: Any) -> Placed:
    """Return an array, from wherever it is, on a device."""
    return a if isinstance(a, Placed) else Placed(tensor_of(a, device))


def device_of(a: Any) -> Any:
    """Return the device of an array; None for one in memory."""
    return a.tensor.device if isinstance(a, Placed) else None


def beside(a: Any, device: Any) -> Any:
    """Return an array where others are: on their device, or as it is where they have none."""
    return a if device is None else placed(a, device)


def to_host(a: Any) -> Any:
    """Return an array in the memory of the host; anything that is not on a device as it is."""
    return np.asarray(a) if isinstance(a, Placed) else a
