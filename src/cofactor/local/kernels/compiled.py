"""Kernels that numba compiles when they are first called, so that an import does not wait for numba."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, update_wrapper
from threading import Lock
from typing import Any

_LOCK = Lock()


class Compiled:
    """A function under ``numba.njit``, which is made at the first call; kernels call each other as numba's own do."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function, self._options, self._made = function, options, None
        update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        """Run it on arrays and numbers."""
        return (self._made or self._dispatcher())(*args)

    def __getattr__(self, name: str) -> Any:
        """Answer as numba's dispatcher: this is how numba asks for the type of a kernel, or whether to inline it."""
        return getattr(self._dispatcher(), name)

    def __reduce__(self) -> str:
        """Travel by name, as functions do."""
        return str(self.__qualname__)

    def _dispatcher(self) -> Any:
        with _LOCK:
            if self._made is None:
                import numba

                _listen()
                self._made = numba.njit(**self._options)(self._function)
        return self._made


@cache
def _listen() -> None:
    """Have it said where compiling takes long; once a process."""
    from cofactor.local.kernels.waiting import listen

    listen()


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Compiled]:
    """Return a decorator for serial kernels that keep what was compiled, and let other threads run.

    ``options`` are more of ``numba.njit``.
    """
    return lambda function: Compiled(function, {"nogil": True, "cache": True, "no_cfunc_wrapper": True, **options})


def inner(**options: Any) -> Callable[[Callable[..., Any]], Compiled]:
    """Return the same for kernels that only others call: what Python would call them by is not compiled."""
    return compiled(no_cpython_wrapper=True, **options)
