"""The page of results: a table for each case, and the growth of a round on logarithmic axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from cases import Case

DOCS = Path(__file__).parents[2] / "docs"
PAGE, PICTURE = DOCS / "benchmarks.md", DOCS / "assets" / "growth.svg"
HEAD = """# Speed

This project, other libraries and the floor of the hardware, measured in one process: works of a case are called in
turn, medians count, and ratios are to the first line, which is the floor where there is one. *cpu* seconds are those of
the processor; *wall* seconds depend on who else was there: `load` is the number of processes that wanted a core.
Made by `make bench` (`python benchmarks/speed --full` for all); one entry of `benchmarks/speed/cases.py` is one case.
"""
LIMITS = """## Where the limits are

- A round in double precision is its two products, four sweeps over the codes (5 % of the multiplications of the
  products) and the gram of the codes (1 %): about 1.06 if all ran at the speed of BLAS.
- A sketched round (`dsanls`) of k = 30 components and d = 180 sketched columns has one sweep, which is k / d = 17 % of
  the multiplications of its products, and the gram of the codes for its loss, as many again. At the speed of BLAS these
  two alone make it 1.3; what is left are generators for the sketches and passes over arrays, in a millisecond or two.
- A round from disk multiplies every value 2k times; blocks are of 4 MB, which stay in cache from the read to both
  products. Of a file of 1 GB in the page cache, k = 10, on one thread: reading took .39 s, the two bare products of
  blocks that are in cache .27 s, and a round .85 s.
- On text the end of a fit depends on the start by some hundredths of a percent: fifteen ways to make one from singular
  vectors ended between .2 % below and .13 % above scikit-learn's error on four matrices of text, and none of them was
  below it on all four. One part of each singular vector is the start from 2000 features on, where it reached that error
  on tf-idf and all text of more than 2000 documents; below, the strongest parts of all vectors are: one part of each
  ends 4 % higher on `scrna_hnsc_gse103322`. What was not reached within 200 rounds is said to be so.
- On other matrices it depends on it by more. Over 21 stored ones (80 rounds, error over scikit-learn's final one) the
  start of one client ended above 1.0001 on seven: `scrna_hnsc_gse103322` 1.0096, `customer` 1.0056, `americas_small`
  1.0050, `adult_onehot` 1.0009, `movielens_latest_small` 1.0007, `news_3windows` 1.0005, `apj` 1.0001; the median is
  .9999. Each of four random starts did on seven to eleven, up to 1.074, and each of four starts from rows on five to
  twelve. NNDSVD from nearly exact singular vectors, as scikit-learn begins, did on four, up to 1.0029, for three more
  rounds of wider products. Ten more directions in the sketch do most of that for less, but then `tic_tac_toe` and `dna`
  end above it, and text takes up to twice the rounds. These are basins: on each of the seven some other start reached
  the error, more rounds do not, and a start that is below on all was not found at the price of two rounds.
- Sparse products in panels of 8, 16 or 25 columns, so that what is gathered or scattered stays in the second cache,
  took 1.3 to 3.5 times as long as whole rows: indices are then walked several times. Tiles of 500 to 8000 columns of X
  took 1.2 to 4 times as long to gather, and with a copy of X in that order .85: not worth twice the memory. Asking for
  rows before they are needed takes 13 % off the scattering (29 to 25 ms), and nothing off the gathering.
- A second thread halves the gathering where it gets a core at once: both halves side by side took 10.9 ms at best, one
  of them alone 11.7, and on a busy machine both took 20 in the median. There (load 16, before other processes), in
  turn, a sparse round of two threads took .86 to .99 of scipy's products, and the code before requests, broad blocks
  and shared grams 1.02 to 1.05; of one thread 1.16 to 1.19 and 1.31 to 1.35. The table of two threads above is of that
  code, on an idle machine.
- Where a sparse round of one thread goes, in ms of 92: gathering 22, scattering 24, sweeps 24, three grams 7, the rest
  are passes over the two factors. Of a dense one in double precision, of 219: products 198, sweeps 14, gram 3, passes
  over the codes 2, all else 2.
- The dense tables of one thread are single runs, on a busy machine. Six more in double precision gave 1.08 to 1.10 and
  once 1.20 (median 1.09; three of the code before: 1.09 to 1.11, median 1.11), three in single precision 1.11 to 1.13
  (median 1.11; before 1.12 to 1.13, median 1.12).
- Dense products are shared by our threads, and BLAS has one: by two threads of BLAS the products above took 37 + 35 ms
  of the wall in single precision, by two of ours 30 + 29 (one thread: 62 + 55), and a round 88 and 70 ms (126), .55 of
  one thread. The table of threads above is one run of seven: .54 to .72, where two of BLAS took .61 and
  .77.
- A round on an H200 of 70000 x 784 pixels, k = 50, takes 4.7 ms, of which the device is busy for 1.8: about 150 kernels
  are launched one by one. The server looks at the loss of every round, so that only parts of a round could be a graph.
- Ten clients begin by default at one upload of what each finds alone, which saves rounds, not seconds: in seconds they
  take 2 to 6 times as long as one client. From `start="svd"` they took 1.0 (tf-idf), 1.5 (`cbcl_faces`), 1.7
  (`bbc_news`) and 4 times (digits, whose rounds take a millisecond) as long as one client.
- Matrices of a hundred rows are fitted in ten milliseconds, most of which nobody multiplies in: there scikit-learn's
  loop is as fast or faster.
"""
GROWTH = """## Growth

A round of `exact` against one side at a time (4000 x 1000, k = 20, float32; sparse: 8000 x 8000; clients: one row of
100 features each, all in every round), one thread. Exponents are slopes of a line through the last three points.

![Seconds of a round against rows, features, rank, density and clients](assets/growth.svg)

"""


def exponent(line: dict[str, Any]) -> float:
    """Return the slope on logarithmic axes through the last three points."""
    x, y = (np.log([float(v) for v in side][-3:]) for side in (line["seconds"], line["seconds"].values()))
    return float(np.polyfit(x, y, 1)[0])


def ratio(case: Case, line: dict[str, Any]) -> float | None:
    """Return what a case claims about, measured; None where it was not."""
    if case.claim is None:
        return None
    work, _, floor = case.claim
    return line["seconds"][work] / line["seconds"][floor]


def line(case: Case, result: dict[str, Any]) -> str:
    """One line for the terminal."""
    times = ", ".join(f"{name} {shown(s)}" for name, s in result["seconds"].items())
    found = ratio(case, result)
    claim = "" if found is None or case.claim is None else f"; {found:.3f}, asked for at most {case.claim[1]}"
    return f"{case.name}: {times}{claim}"


def shown(seconds: float | None) -> str:
    """Three digits and a unit."""
    if seconds is None:
        return "not reached"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _table(case: Case, result: dict[str, Any]) -> str:
    times = result["seconds"]
    first = next(iter(times.values()))
    rows = [f"| {name} | {shown(s)} | {'' if s is None else f'{s / first:.2f}'} |" for name, s in times.items()]
    rows += [f"| {name} | {why} | |" for name, why in result["left_out"].items()]
    head = f"## {case.title}\n\n| | {result['clock']} | ratio |\n|---|---:|---:|\n"
    found = ratio(case, result)
    claim = ""
    if found is not None and case.claim is not None:
        work, most, floor = case.claim
        claim = (
            f"\n{work.capitalize()} over {floor}: **{found:.2f}**, asked for at most {most} (load {result['load']}).\n"
        )
    return head + "\n".join(rows) + "\n" + claim


def text(cases: list[Case], results: dict[str, dict[str, Any]]) -> str:
    """Return the page."""
    plain = [c for c in cases if c.name in results and not c.name.startswith("growth-")]
    grown = [c for c in cases if c.name in results and c.name.startswith("growth-")]
    parts = [HEAD, *(_table(case, results[case.name]) for case in plain), LIMITS]
    if grown:
        lines = [_growth(case, results[case.name]) for case in grown]
        parts.append(
            GROWTH
            + "| side | from, to | seconds of a round | exponent |\n|---|---|---|---:|\n"
            + "\n".join(lines)
            + "\n"
        )
    return "\n".join(parts)


def _growth(case: Case, result: dict[str, Any]) -> str:
    sides, times = list(result["seconds"]), list(result["seconds"].values())
    ends = f"{sides[0]}, {sides[-1]}"
    return f"| {case.name.removeprefix('growth-')} | {ends} | {', '.join(map(shown, times))} | {exponent(result):.2f} |"


def write(cases: list[Case], results: dict[str, dict[str, Any]]) -> None:
    """Write the page and its picture."""
    PAGE.write_text(text(cases, results))
    grown = {
        c.name.removeprefix("growth-"): results[c.name]
        for c in cases
        if c.name.startswith("growth-") and c.name in results
    }
    if grown:
        draw(grown)


def draw(grown: dict[str, dict[str, Any]]) -> None:
    """One small picture for each side."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(grown), figsize=(2.6 * len(grown), 2.8), layout="constrained", squeeze=False)
    for axis, (name, result) in zip(axes[0], grown.items(), strict=True):
        x, y = ([float(v) for v in side] for side in (result["seconds"], result["seconds"].values()))
        axis.loglog(x, y, "o-", color="#00796b")
        axis.set_title(f"{name}: {exponent(result):.2f}", fontsize=10)
        axis.set_xlabel(name)
        axis.grid(alpha=0.3, which="both")
    axes[0, 0].set_ylabel("seconds of a round")
    figure.savefig(PICTURE, metadata={"Date": None})
