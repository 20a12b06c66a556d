"""The words of cofactor: what is factorized, what crosses a boundary, what a piece is allowed to be.

Notation: client j holds rows ``X_j`` (n_j x m); ``X_j ~ W_j H`` with private codes ``W_j`` (n_j x k) and
one shared factor ``H`` (k x m); ``k`` is the rank.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Data = Any
"""A dense numpy array or a scipy CSR / CSC matrix; checked once by :func:`cofactor.local.arrays.check`."""


class CofactorError(ValueError):
    """Base of every error that cofactor raises on purpose: expected, found, where, what to do.

    ``told`` is what others hear of it where it may tell of a client's data in a private run; None: all of it.
    """

    told: str | None = None


KEPT = (
    "expected data of the declared kind, such as finite values >= 0, found others. What was found, and where, is for "
    "that client alone: check the data there before a private run."
)
"""What others are told of a client's data in a private run."""


class DataError(CofactorError):
    """A client's data cannot be factorized as it is; ``column`` is where, for whoever knows its name.

    What it says is for the client itself. In a private run others are only ``told`` that there was something.
    """

    def __init__(self, text: str, column: int | None = None, told: str | None = None) -> None:
        super().__init__(text)
        self.column, self.told = column, told

    def named(self, names: Sequence[str]) -> DataError:
        """Return the same error with the name of its column."""
        if self.column is None:
            return self
        here = f"column {self.column}"
        return DataError(str(self).replace(here, f"{here} ({names[self.column]!r})", 1), told=self.told)

    def kept(self, client: object) -> DataError:
        """Return the same error of a private run, in which others are not told what was found, nor where."""
        return DataError(str(self), self.column, f"client {client}: {KEPT}")


class DisclosureWarning(UserWarning):
    """What is about to be shared holds a row of a client as it is."""


class ClientError(CofactorError):
    """A client failed, or answered with something its method does not send."""


def unknown(what: str, name: object, known: Iterable[str]) -> CofactorError:
    """Return the error for a name that nobody knows, with the nearest one that is known.

    >>> str(unknown("engine", "mip", ["inline", "mpi"]))
    "unknown engine 'mip'. Did you mean 'mpi'? Expected one of: inline, mpi."
    """
    known = list(known)
    folded = {one.lower(): one for one in known}
    near = difflib.get_close_matches(str(name).lower(), folded, n=1)
    hint = f" Did you mean {folded[near[0]]!r}?" if near else ""
    return CofactorError(f"unknown {what} {name!r}.{hint} Expected one of: {', '.join(known)}.")


def few(texts: Sequence[str], most: int) -> str:
    """Return the first texts of a list, and how many more there are.

    >>> few(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


class Stats(NamedTuple):
    """All that the half-problem ``min_F 1/2 |X - F B|^2`` needs of X and B.

    ``gram = B B^T`` (k x k), ``cross = X B^T`` (rows x k); the gradient is ``F gram - cross``.
    """

    gram: Array
    cross: Array


class Message(NamedTuple):
    """The only thing that leaves a client: named arrays (numpy scalars too) and the sender's weight.

    ``cost`` says what the release of an array costs; it is for the ledger and is not sent. A sum of messages is a
    message too: its arrays are in double precision, and ``dtypes`` are those of the messages in it. ``spare`` is the
    seed of noise in a message that may turn out not to be needed, and stays with the client until then; of a sum,
    ``spared`` messages had it taken out.
    """

    arrays: dict[str, Any]
    weight: float = 1.0
    cost: Mapping[str, Any] = {}
    dtypes: Mapping[str, Any] = {}
    spare: bytes = b""
    spared: int = 0

    def dtype(self, name: str) -> np.dtype[Any]:
        """The type in which clients sent an array."""
        return np.dtype(self.dtypes[name]) if name in self.dtypes else np.result_type(self.arrays[name])


class Shared(NamedTuple):
    """The server's state. Clients receive ``factor`` and ``extra``; ``memory`` stays on the server.

    Some names in the memory mean the same in every method that has them. Three are one number for each component: its
    ``share`` of the reconstruction, by which the result is put in order; its ``stability``, the worst cosine to what
    other restarts found that are as good (NaN: nobody looked); and of a centre its size in ``sizes``: of how many rows
    it is the mean. ``observed`` says of each feature whether any cell of it was.
    """

    factor: Array
    extra: Mapping[str, Any] = {}
    memory: Mapping[str, Any] = {}
    loss: float = np.nan
    drift: float = np.nan

    def broadcast(self) -> Shared:
        """Return what clients may see: the state without the server's memory."""
        return self._replace(memory={})


class Local(NamedTuple):
    """A client's private state: its codes and whatever else its method remembers between rounds."""

    codes: Array
    memory: Mapping[str, Any] = {}

    def rows(self, here: Any) -> Local:
        """Return the state of some rows, where every array has one entry per row."""
        return Local(self.codes[here], {name: a[here] for name, a in self.memory.items()})

    def put(self, part: Local, here: Any) -> Local:
        """Return the state in which these rows are as in ``part``."""

        def put(old: Array, new: Array) -> Array:
            out = old.astype(new.dtype)
            out[here] = new
            return out

        return Local(put(self.codes, part.codes), {name: put(self.memory[name], a) for name, a in part.memory.items()})


class Update(Protocol):
    """One improvement of F in ``min_{F >= 0} 1/2 |X - F B|^2``, seen through :class:`Stats` alone."""

    def __call__(self, F: Array, stats: Stats, t: int = 0, previous: Array | None = None) -> Array:
        """Return the new F (rows x k); ``previous`` is the iterate before F, for inertia."""
        ...


class Align(Protocol):
    """Match components: the plan P (rows of H x rows of reference) of ``min_P 1/2 |H - P reference|^2``."""

    def __call__(self, H: Array, reference: Array) -> Array:
        """Return P; a row of zeros is a component without a partner."""
        ...


class Aggregator(Protocol):
    """Merge what the clients sent into one factor; ``additive`` if their sum is all it needs."""

    @property
    def additive(self) -> bool:
        """Whether the sum of the messages is enough."""
        ...

    @property
    def streams(self) -> bool:
        """Whether it was made to merge messages one by one, as they arrive."""
        ...

    def noisy(self) -> Aggregator | None:
        """Return the form that can merge factors with noise on them; None where there is none."""
        ...

    def schema(self, rank: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """Name and shape of every array in a message."""
        ...

    def message(self, W: Array, H: Array) -> Message:
        """Client: what of its codes and its factor (rows at norm 1) the server needs."""
        ...

    def __call__(self, messages: list[Message], current: Array, t: int) -> Array:
        """Return the new factor; ``current`` is the factor that was broadcast."""
        ...


class Factorizer(Protocol):
    """Factorize one client's data alone."""

    def __call__(self, X: Data, rank: int, rng: np.random.Generator, start: Array | None = None) -> tuple[Array, Array]:
        """Return (W, H); ``start`` is a factor to begin from."""
        ...
