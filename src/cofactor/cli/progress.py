"""Progress: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from cofactor.engines.history import Round
from cofactor.types import Shared

SHOWN = 12
COLUMNS = ("round", "loss", "drift", "sent", "seconds", "clients", "left")


class Progress:
    """A callback that shows every round: loss, drift, bytes, seconds, participants and the time left at most."""

    def __init__(self, rounds: int, *, quiet: bool = False) -> None:
        self.rounds, self.quiet = rounds, quiet
        self.lines: deque[tuple[str, ...]] = deque(maxlen=SHOWN)
        self.seconds: list[float] = []
        self.console = Console(stderr=True)
        self.live = Live(console=self.console, transient=True) if self.console.is_terminal and not quiet else None

    def __enter__(self) -> Self:
        """Begin the display."""
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the display, whatever happened."""
        if self.live:
            self.live.stop()

    def __call__(self, line: Round, shared: Shared) -> None:
        """Show one round."""
        self.seconds.append(line.seconds)
        left = sorted(self.seconds)[len(self.seconds) // 2] * (self.rounds - line.round - 1)
        cells = (
            f"{line.round + 1}/{self.rounds}",
            f"{line.loss:.6g}",
            "-" if line.drift != line.drift else f"{line.drift:.3g}",
            _bytes(line.bytes_up + line.bytes_down),
            f"{line.seconds:.2f}",
            str(line.participants),
            f"{left:.0f} s",
        )
        self.lines.append(cells)
        if self.live:
            self.live.update(self._table())
        elif not self.quiet:
            text = "  ".join(f"{name} {cell}" for name, cell in zip(COLUMNS, cells, strict=True))
            print(text, file=sys.stderr, flush=True)

    def _table(self) -> Table:
        table = Table()
        for name in COLUMNS:
            table.add_column(name, justify="right")
        for cells in self.lines:
            table.add_row(*cells)
        return table


def _bytes(count: float) -> str:
    """Write a number of bytes for people.

    >>> _bytes(512), _bytes(2_500_000)
    ('512 B', '2.4 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return ""
