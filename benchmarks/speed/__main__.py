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
import contextlib
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


def seconds(work: Callable[[], object], clock: str, least: float) -> float:
    """Call it until ``least`` seconds are over, once at least; a number that it returns is what it measured itself."""
    tick, times = time.perf_counter if clock == "wall" else time.process_time, 1
    begin = tick()
    own = work()
    if isinstance(own, float):
        return own
    while tick() - begin < least:
        work()
        times += 1
    return (tick() - begin) / times


def measure(case: Case) -> dict[str, Any]:
    """Return the medians of a case, what was left out and why, and how busy the machine was."""
    found = case.make()
    times: dict[str, list[float]] = {name: [] for name, work in found.items() if not isinstance(work, str)}
    with threadpool_limits(case.threads, "blas"):
        for _ in range(case.repeats):
            for name in list(times):
                try:
                    times[name].append(seconds(found[name], case.clock, case.least))
                except Exception as error:  # a peer that does not run here is named and left out
                    found[name] = why(error)
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


def why(error: BaseException) -> str:
    """Return an error in one line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def read() -> dict[str, dict[str, Any]]:
    """Return the results by case; the last one of a case counts, and a line that is cut off does not."""
    found: dict[str, dict[str, Any]] = {}
    for text in RESULTS.read_text().splitlines() if RESULTS.exists() else []:
        with contextlib.suppress(json.JSONDecodeError):
            line = json.loads(text)
            found[line["case"]] = line
    return found


def write(results: dict[str, dict[str, Any]]) -> None:
    """Keep one line for each case, in the order of the cases."""
    order = {case.name: i for i, case in enumerate(CASES)}
    kept = sorted((r for name, r in results.items() if name in order), key=lambda r: order[r["case"]])
    begun = RESULTS.with_suffix(".part")  # an end in the middle leaves what was there
    begun.write_text("".join(json.dumps(line) + "\n" for line in kept))
    begun.replace(RESULTS)


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
            result = measure(case)
        except Exception as error:  # such as data that are not here: what comes next is measured nevertheless
            print(f"{case.name}: left out: {why(error)}", file=sys.stderr)
            continue
        for name, reason in result["left_out"].items():
            print(f"{case.name}: {name} left out: {reason}", file=sys.stderr)
        if not result["seconds"]:
            continue
        results[case.name] = result
        print(page.line(case, result), flush=True)
        write(results)
    page.write(CASES, read())


if __name__ == "__main__":
    main()
