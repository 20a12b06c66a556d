"""Progress: a live table in a terminal with what is under way below it, plain lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cofactor.cli.console import Console
from cofactor.engines.history import Round
from cofactor.jobs.job import Job
from cofactor.local.told import LOG
from cofactor.report.words import size
from cofactor.types import Shared

SHOWN = 12
COLUMNS = ("round", "loss", "drift", "sent", "seconds", "clients", "left")
SPENT = "epsilon"
SAID = logging.getLogger("cofactor")
"""What the library says of itself, such as that it compiles."""


class Progress:
    """A callback that shows every round: loss, drift, bytes, seconds, participants and the time left at most.

    In private runs there is one column more, what all rounds so far have cost. ``rounds`` is None where nobody can
    say how many there will be. Below stands what is under way: how long the round takes so far, and of work in many
    pieces (starts of a consensus, fits of a rank scan) how many are done and the time left.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.rounds: int | None = None
        self.stages = 1
        self.quiet = quiet
        self.columns: tuple[str, ...] = COLUMNS
        self.lines: deque[tuple[str, ...]] = deque(maxlen=SHOWN)
        self.seconds: list[float] = []
        self.console = Console(stderr=True)
        self.heard, self.pieces, self.since = _Heard(self), "", time.monotonic()
        shown = self.console.is_terminal and not quiet
        self.live = Live(get_renderable=self._shown, console=self.console, transient=True) if shown else None

    def __enter__(self) -> Self:
        """Begin the display."""
        if self.quiet:
            SAID.setLevel(logging.ERROR)
        if self.live:
            LOG.addHandler(self.heard)
            LOG.setLevel(logging.INFO)
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the display, whatever happened."""
        if self.quiet:
            SAID.setLevel(logging.NOTSET)
        if self.live:
            LOG.removeHandler(self.heard)
            self.live.stop()

    def begin(self, rounds: int | None, text: str = "", stages: int = 1) -> None:
        """Learn how many rounds there will be at most, in how many stages, and say what is to be said before them."""
        self.rounds, self.stages = rounds, stages
        if text and not self.quiet:
            self.console.print(text, soft_wrap=True, markup=False)

    def __call__(self, line: Round, shared: Shared) -> None:
        """Show one round."""
        if self.quiet:
            return
        if line.stage == self.stages - 1:  # a start takes other times
            self.seconds.append(line.seconds)
        cells: tuple[str, ...] = (
            f"{line.round + 1}/{self.rounds}" if self.rounds else str(line.round + 1),
            self._loss(line),
            "-" if line.drift != line.drift else f"{line.drift:.3g}",
            size(line.bytes_up + line.bytes_down),
            f"{line.seconds:.2f}",
            str(line.participants),
            self._left(line),
        )
        if line.epsilon == line.epsilon:
            self.columns, cells = (*COLUMNS, SPENT), (*cells, f"{line.epsilon:.4g}")
        self.lines.append(cells)
        self.pieces, self.since = "", time.monotonic()
        if self.live:
            self.live.refresh()
        else:
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

    def hear(self, what: str, done: int, total: int) -> None:
        """Learn how many pieces of some work are done."""
        if done == 1:
            self.since = time.monotonic()
        left = (time.monotonic() - self.since) / max(done - 1, 1) * (total - done)
        self.pieces = f"{done} of {total} {what}" + (f", {left:.0f} s left" if done > 1 else "")

    def _shown(self) -> RenderableType:
        """Return the table of rounds, and what is under way."""
        spent = f"{time.monotonic() - self.since:.0f} s so far"
        now = Text(self.pieces or f"working, {spent}", style="dim")
        return Group(self._table(), now) if self.lines else now

    def _table(self) -> Table:
        table = Table()
        for name in self.columns:
            table.add_column(name, justify="right")
        for cells in self.lines:
            table.add_row(*cells)
        return table


def announcer(progress: Progress) -> Callable[[Job], None]:
    """Return what tells people of a job before it runs: why its method was chosen, and how many rounds it takes."""

    def announce(job: Job) -> None:
        why, hint = job.config.why, job.prepared.hint
        said = [f"Method {why}"] * bool(why) + [f"Hint: {hint.replace('prepare=', '--prepare ')}"] * bool(hint)
        said += [f"Mind that {job.foreseen.replace('`rows`', '--rows')}"] * bool(job.foreseen)
        progress.begin(job.rounds, "\n".join(said), len(job.method.traits.stages))

    return announce


class _Heard(logging.Handler):
    """Hands on what long work says of itself."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.INFO)
        self.progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        """Tell how many pieces are done."""
        if isinstance(record.args, tuple) and len(record.args) == 3:
            self.progress.hear(*record.args)  # type: ignore[arg-type]
