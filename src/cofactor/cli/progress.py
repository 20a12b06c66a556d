"""Progress: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections import deque
from types import TracebackType
from typing import Self

from rich.live import Live
from rich.table import Table

from cofactor.cli.console import Console
from cofactor.engines.history import Round
from cofactor.types import Shared

SHOWN = 12
COLUMNS = ("round", "loss", "drift", "sent", "seconds", "clients", "left")
SPENT = "epsilon"


class Progress:
    """A callback that shows every round: loss, drift, bytes, seconds, participants and the time left at most.

    In private runs there is one column more, what all rounds so far have cost. ``rounds`` is None where nobody can
    say how many there will be.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.rounds: int | None = None
        self.stages = 1
        self.quiet = quiet
        self.columns: tuple[str, ...] = COLUMNS
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

    def begin(self, rounds: int | None, text: str = "", stages: int = 1) -> None:
        """Learn how many rounds there will be at most, in how many stages, and say what is to be said before them."""
        self.rounds, self.stages = rounds, stages
        if text and not self.quiet:
            self.console.print(text, soft_wrap=True, markup=False)

    def __call__(self, line: Round, shared: Shared) -> None:
        """Show one round."""
        if line.stage == self.stages - 1:  # a start takes other times
            self.seconds.append(line.seconds)
        cells: tuple[str, ...] = (
            f"{line.round + 1}/{self.rounds}" if self.rounds else str(line.round + 1),
            self._loss(line),
            "-" if line.drift != line.drift else f"{line.drift:.3g}",
            _bytes(line.bytes_up + line.bytes_down),
            f"{line.seconds:.2f}",
            str(line.participants),
            self._left(line),
        )
        if line.epsilon == line.epsilon:
            self.columns, cells = (*COLUMNS, SPENT), (*cells, f"{line.epsilon:.4g}")
        self.lines.append(cells)
        if self.live:
            self.live.update(self._table())
        elif not self.quiet:
            text = "  ".join(f"{name} {cell}" for name, cell in zip(self.columns, cells, strict=True))
            print(text, file=sys.stderr, flush=True)

    def _loss(self, line: Round) -> str:
        """Return a loss that compares with the last one: that of an earlier stage is of something else."""
        if line.stage < self.stages - 1:
            return "start"
        return "-" if line.loss != line.loss else f"{line.loss:.6g}"

    def _left(self, line: Round) -> str:
        if self.rounds is None or not self.seconds:
            return "-"
        return f"{sorted(self.seconds)[len(self.seconds) // 2] * (self.rounds - line.round - 1):.0f} s"

    def _table(self) -> Table:
        table = Table()
        for name in self.columns:
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
