"""A round of a client whose rows are read block by block: each as if it were a client of its own, read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

import numpy as np

from cofactor.local.threads import in_turn, lent, single_blas
from cofactor.method import total
from cofactor.types import Array, Data, Local, Message

AT_ONCE = 16
"""Messages of blocks that are kept until they are added up."""


def step(work: Callable[[Data, Local], tuple[Local, Message]], X: Data, local: Local) -> tuple[Local, Message]:
    """Return the state and the message of all rows of X, by ``work`` on every block of them."""
    whole = Whole(local)

    def one(block: tuple[slice, Data]) -> Message:
        part, message = work(block[1], local.rows(block[0]))
        whole.put(part, block[0])
        return message

    messages: list[Message] = []
    for message in _over_blocks(one, X):
        messages.append(message)
        if len(messages) > AT_ONCE:  # all of them together may be as large as the file
            messages = [total(messages)]
    return whole.local(), _as_sent(messages)


class Whole:
    """The state of all rows, from that of blocks, by whatever threads: what is new is copied to its place at once.

    What a block kept of the state before, such as its old codes, is that of all rows: it is not copied at all.
    """

    def __init__(self, before: Local) -> None:
        self._rows, self._before = len(before.codes), (before.codes, *before.memory.values())
        self._found: dict[str, Array] = {}
        self._one_by_one = Lock()

    def put(self, part: Local, rows: slice) -> None:
        """Add the state of a block."""
        with self._one_by_one:
            for name, a in (("", part.codes), *part.memory.items()):
                self._put(name, a, rows)

    def local(self) -> Local:
        """Return the state of all rows."""
        return Local(self._found[""], {name: a for name, a in self._found.items() if name})

    def _put(self, name: str, a: Array, rows: slice) -> None:
        if name not in self._found:
            whole = next((old for old in self._before if _is_part(a, old[rows])), None)
            self._found[name] = np.empty((self._rows, *a.shape[1:]), a.dtype) if whole is None else whole
        out = self._found[name]
        if _is_part(a, out[rows]):
            return
        kept = any(out is old for old in self._before)
        if kept or out.dtype != a.dtype:  # blocks before this one were of another kind
            self._found[name] = out = out.astype(np.result_type(out, a))
        out[rows] = a


def _is_part(a: Array, b: Array) -> bool:
    """Whether two arrays are the same numbers in memory."""
    same = a.shape == b.shape and a.dtype == b.dtype and a.strides == b.strides
    return same and a.ctypes.data == b.ctypes.data


def _over_blocks(work: Callable[[tuple[slice, Data]], Any], X: Data) -> Iterator[Any]:
    """Yield what is made of every block, in their order; threads that were lent read and work on one each.

    Sums are added in one order, whatever the threads; one that is done finds another block waiting for it.
    """
    if (threads := lent()) == 1:
        yield from map(work, X.blocks())
        return
    with single_blas():
        yield from in_turn(lambda rows: work((rows, X.row_block(rows))), X.slices(), threads, ahead=2 * threads)


def _as_sent(messages: list[Message]) -> Message:
    """Return the sum of messages in the types in which they were sent."""
    if len(messages) == 1 and not messages[0].dtypes:
        return messages[0]
    sums = total(messages)
    return sums._replace(arrays={n: np.asarray(a, sums.dtype(n))[()] for n, a in sums.arrays.items()}, dtypes={})
