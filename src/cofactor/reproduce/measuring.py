"""Running cells: every result is one line on disk, so that an interrupted run goes on where it was."""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from cofactor.files import lines_of
from cofactor.reproduce.experiment import Experiment, Settings, key

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
DIGITS = 6
"""Numbers are written down with so many digits: more than anybody reads, and the same on most machines."""


@dataclass(frozen=True)
class Done:
    """One cell that has ended: of which experiment, how many of how many, and the seconds that are left, at a guess."""

    experiment: str
    line: Settings
    done: int
    cells: int
    left: float


Told = Callable[[Done], None]


class Book:
    """The lines of one experiment on disk (``cells.jsonl``), whatever the size; failed cells are tried again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[str, Settings] = {}
        for text in lines_of(path):
            try:
                line = json.loads(text)
            except json.JSONDecodeError:  # the end of a line that was being written
                continue
            self.lines[key(line["cell"])] = line

    def has(self, cell: Settings) -> bool:
        """Whether the cell was run, and did not fail."""
        return not self.lines.get(key(cell), {"error": "new"}).get("error")

    def write(self, line: Settings) -> None:
        """Add one line; it is there as soon as this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = not self.path.exists() or self.path.read_bytes()[-1:] in (b"", b"\n")
        with self.path.open("a") as file:
            file.write(("" if whole else "\n") + json.dumps(line) + "\n")
        self.lines[key(line["cell"])] = line

    def of(self, cells: Iterable[Settings]) -> list[Settings]:
        """Return the lines of these cells that there are."""
        return [self.lines[k] for k in map(key, cells) if k in self.lines]


Job = tuple[Experiment, Settings]


def run_cells(jobs: Sequence[Job], books: dict[str, Book], *, workers: int | None = None, told: Told) -> None:
    """Run the cells that no book has yet, several at a time with one thread each; those that measure time alone last.

    A cell that fails is written down with its error, and the others go on.
    """
    todo = [job for job in jobs if not books[job[0].name].has(job[1])]
    beside, alone = ([job for job in todo if job[0].alone is lonely] for lonely in (False, True))
    pace = _Pace(len(todo), workers or len(os.sched_getaffinity(0)))

    def keep(job: Job, line: Settings) -> None:
        books[job[0].name].write(line)
        told(pace.done(job[0].name, line))

    with _one_thread_each():
        _together(beside, pace.workers, keep)
        for job in alone:
            keep(job, measured(job))


def measured(job: Job) -> Settings:
    """Run one cell, and return its line: settings, result or error, and CPU seconds, those of its own processes too."""
    experiment, cell = job
    begin = sum(os.times()[:4])
    line: Settings = {"cell": cell}
    try:
        line["result"] = rounded(experiment.measure(cell))
    except Exception as error:  # whatever it is, it belongs to this cell alone
        where = traceback.extract_tb(error.__traceback__)[-1]
        line |= {"result": {}, "error": f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"}
    return {**line, "seconds": round(sum(os.times()[:4]) - begin, 2)}


def rounded(value: Any) -> Any:
    """Return numbers with the digits that are written down; what is no finite number is None.

    >>> rounded({"a": [1.23456789, float("inf")], "b": 3})
    {'a': [1.23457, None], 'b': 3}
    """
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(part) for part in value]
    if isinstance(value, str | bool | int | None):
        return value
    number = float(value)
    return float(f"{number:.{DIGITS}g}") if abs(number) < float("inf") else None


def _together(jobs: Sequence[Job], workers: int, keep: Callable[[Job, Settings], None]) -> None:
    """Run jobs in processes of their own. Where one of these dies, those at work are run again, each alone."""
    left = list(jobs)
    while left := _pooled(left, workers, keep):
        suspects, left = left[: workers + 1], left[workers + 1 :]
        for job in suspects:
            if _pooled([job], 1, keep):
                said = "the process ended without a word: killed, out of memory, or by a fault"
                keep(job, {"cell": job[1], "result": {}, "error": said, "seconds": 0.0})


def _pooled(jobs: Sequence[Job], workers: int, keep: Callable[[Job, Settings], None]) -> list[Job]:
    """Run jobs until a process dies, and return those without an end; Ctrl-C ends all, and what is written stays."""
    if not jobs:
        return []
    pool = ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn"), initializer=_deaf)
    lost: set[int] = set()
    try:
        running: dict[Future[Settings], Job] = {pool.submit(measured, job): job for job in jobs}
        while running:
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                job = running.pop(future)
                if future.exception() is None:
                    keep(job, future.result())
                else:
                    lost.add(id(job))
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return [job for job in jobs if id(job) in lost]


def _deaf() -> None:
    """Leave Ctrl-C to the process that started this one."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _one_thread_each() -> Any:
    """Processes that start in here use one thread: cells are what runs side by side."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


class _Pace:
    """How long the rest will take: by the experiments' own cells so far, or those of all."""

    def __init__(self, cells: int, workers: int) -> None:
        self.cells, self.workers, self.count = cells, workers, 0
        self.begin = time.monotonic()

    def done(self, name: str, line: Settings) -> Done:
        self.count += 1
        left = (time.monotonic() - self.begin) / self.count * (self.cells - self.count)
        return Done(name, line, self.count, self.cells, left)
