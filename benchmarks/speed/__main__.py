"""This project, its peers and the hardware's floor, measured in one run.

    make bench                                   # the small cases, a few minutes
    python benchmarks/speed --full               # all of them; goes on where it ended
    python benchmarks/speed sparse ratings       # some
    python benchmarks/speed --again round-float32
    python benchmarks/speed --page               # docs/benchmarks.md and its picture from the results

The works of a case are called in turn, over and over, in one process; what counts are medians and their ratios.
Seconds are those of the CPU (children included), or of the wall where threads or the start of a process are measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import page
from cases import CASES, Case
from threadpoolctl import threadpool_limits

RESULTS = Path(__file__).with_name("results.jsonl")


def seconds(work: Callable[[], object], clock: str) -> float:
    """Call it once; a number that it returns are seconds that it measured itself."""
    tick = time.perf_counter if clock == "wall" else time.process_time
    begin = tick()
    own = work()
    return own if isinstance(own, float) else tick() - begin


def measure(case: Case) -> dict[str, Any]:
    """Return the medians of a case, what was left out and why, and how busy the machine was."""
    found = case.make()
    times: dict[str, list[float]] = {name: [] for name, work in found.items() if not isinstance(work, str)}
    with threadpool_limits(case.threads, "blas"):
        for _ in range(case.repeats):
            for name in list(times):
                try:
                    times[name].append(seconds(found[name], case.clock))
                except Exception as error:  # a peer that does not run here is named and left out
                    found[name] = f"{type(error).__name__}: {error}".splitlines()[0]
                    del times[name]
    medians = {name: float(np.median(t)) for name, t in times.items()}
    return {
        "case": case.name,
        "seconds": {name: s if math.isfinite(s) else None for name, s in medians.items()},
        "left_out": {name: why for name, why in found.items() if isinstance(why, str)},
        "clock": case.clock,
        "load": round(os.getloadavg()[0], 1),
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }


def read() -> dict[str, dict[str, Any]]:
    """Return the results by case; the last one of a case counts."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {line["case"]: line for line in map(json.loads, lines)}


def write(results: dict[str, dict[str, Any]]) -> None:
    """Keep one line for each case, in the order of the cases."""
    order = {case.name: i for i, case in enumerate(CASES)}
    kept = sorted((r for name, r in results.items() if name in order), key=lambda r: order[r["case"]])
    RESULTS.write_text("".join(json.dumps(line) + "\n" for line in kept))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help="names, or beginnings of names; all small ones where none is given")
    parser.add_argument("--full", action="store_true", help="large cases too")
    parser.add_argument("--again", action="store_true", help="measure anew what has a result")
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args()
    results = read()
    for case in [] if options.page else CASES:
        asked = any(case.name.startswith(name) for name in options.cases)
        if not (asked or (not options.cases and (options.full or not case.full))):
            continue
        if case.name in results and not options.again:
            continue
        try:
            results[case.name] = measure(case)
        except (ImportError, FileNotFoundError, ValueError) as error:  # such as data that are not here
            print(f"{case.name}: left out: {error}", file=sys.stderr)
            continue
        print(page.line(case, results[case.name]), flush=True)
        write(results)
    page.write(CASES, read())


if __name__ == "__main__":
    main()
