"""The page of results: a table for each case, and the growth of a round on logarithmic axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import picture
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
  products) and the gram of the codes (1 %, half of it where one triangle is summed): about 1.06 if all ran at the same
  speed. Sweeps run at some 65 billion multiplications a second in double precision, products of a matrix that is read
  from memory at 40. Where a client has 8192 dense rows or more, a block of 4 MB of them is read once for both products,
  and its codes, what is extrapolated, and their gram are made between the two, while all of it is in the caches; sums
  are of four chunks of rows, one after the other or a thread each, to the same bits. Of our own two products (CPU,
  medians) a round took 1.10 in double precision and 1.12 in single before, and .98 and 1.02 then, on a machine that had
  nothing else to do. Since products themselves ask for what comes next, they take .9 of their time, a round .95 to .99
  of its time, and it is 1.05 and 1.10 of them beside other processes (load 4), where single steps take 1.11 and 1.14.
  The tables above are of a machine with slower memory than that (products took 1.7 of their time there): 1.05 and 1.08.
- Dense products are our own up to k = 128 where registers hold a line of cache (AVX-512). numpy's BLAS used shorter
  vectors on the machine of this page, whatever that machine has (`OPENBLAS_CORETYPE=SkylakeX` doubles it on large
  squares), and packs X first. GFlop/s of `X H^T` and `W^T X`, ours and BLAS, one thread: 1048 x 1000, k = 10, float32
  177 and 221, 77 and 69; 20000 x 2000, k = 10, float32 93 and 153, 46 and 46; k = 50, float32 155 and 228, 96 and 101;
  float64 77 and 117, 46 and 47; 5000 x 5000, k = 100, float64 94 and 125, 57 and 57.
- `W^T X` takes four lines of each of 64 rows at a time, for all columns of W. The processor foresees a few rows, no 64:
  what comes two tiles later is asked for, two lines at each product, which took a quarter (k = 50) to two fifths
  (k = 10) off it. Of 128 rows, for which the first cache is too small, it was 3 and 16 %; one tile ahead 8 and 25 %.
- Sixteen sums of a line, a line of each and a weight fill the registers of a sweep. Sums of four products at a time,
  added as one, were more: seven lines were put aside at every step, and in a process whose stack begins in the middle
  of a line of cache, one of four, a sweep took 1.4 of its time.
- `fnmf-lap` and `felb` sweep codes and factor after every product: 1.16 to 1.21 and 1.12 to 1.22 of our own products
  (load 3 to 8); 1.25 to 1.27 when `|X|^2` was summed in every round.
- A sketched round (`dsanls`) of k = 30 components and d = 180 sketched columns has one sweep, which is k / d = 17 % of
  the multiplications of its products. Half an iteration took 950 microseconds beside other work, and takes 570 (550 to
  590; load 3 to 10): rows that a sketch picks are multiplied where they are (560 for a scaled copy and its product, now
  320, 225 of them arithmetic), the loss comes out of the sums of the sweep (a gram and a product had taken 110, now 4),
  and factors lie as lanes do (two turns of what was multiplied, 40). The sweep takes 95: 45 are arithmetic, the rest
  waits for the last cache, and asking for lines ahead changed nothing there. What is left of 155 is Python, at twice
  the time that it takes where nothing pushes it out of the second cache: generators and draws of a sketch 33, the step
  and its statistics 40, the round around it 33, sums and the next state 19, what is sent 22. Of our own products, which
  are a third less than they were, a round is 1.6 (1.7 before); of those they were, 1.05, and of numpy's .67. What is no
  product goes with the size (of 20 000 x 20 000 a sweep is k / d = 5 %): 1.4 of its own products at 12 000 x 12 000,
  1.18 at 20 000 x 20 000.
- A round from disk multiplies every value 2k times; blocks are of 8 MB, which stay in the last cache from the read to
  both products (4 MB take a tenth longer, 12 MB a quarter on one thread). Two threads read no faster than memory
  allows (4 GB: .137 s by one, .095 by two). Of a file of 4 GB a round of two threads took 1.01 of reading it once by
  one at k = 2, 1.07 at k = 5, and 1.34 to 1.66 at k = 10, where reading itself took .16 to .21 s; of 1 GB 1.02 to 1.06
  at k = 10. In three runs of a later day, when reading took .26 to .29 s, it was 1.25, 1.28 and 1.37; .91 to .94 of 1
  GB. With BLAS in the place of own kernels, in blocks of 4 MB, it had been 2.1 to 3.3.
- Of a gigabyte, at k = 10 on one thread and beside other work, reading took 35 ms of the processor, products 57, sweeps
  and grams 14, and copies of the state 7 (.1 s of 4 GB), which are no more. A mapped file was slower: 100 to 135 ms for
  what reads and products did in 95, since what is read is then in a cache and what is mapped is not. Buffers that are
  used again, or lie on large pages, and asking for rows before they are needed changed nothing. What is divided by
  above is a read into new memory of 32 MB, which itself takes some 25 ms to be there.
- A first fit of a new installation compiles five to thirty loops, which takes .1 to .4 s each, three fifths of it LLVM;
  numba itself is there after .5 s. When loops made arrays of their own and checked shapes it was 2.9 s of the processor
  on 2000 x 300, 9.9 for `boolean-oneshot` and 4.4 for ratings; ten clients, which took 3.2, have more loops now.
  Machine code is not shipped: what numba keeps is for one version of numba, of Python and one processor. `cofactor
  compile` makes all of it beforehand, some sixty loops in about twenty seconds, as when an image is built.
- On text the end of a fit depends on the start by some hundredths of a percent: fifteen ways to make one from singular
  vectors ended between .2 % below and .13 % above scikit-learn's error on four matrices of text, and none of them was
  below it on all four. What was not reached within 200 rounds is said to be so.
- On other matrices it depends on it by more: these are basins, which more rounds do not leave. One client with 128
  features or more begins at parts of its singular vectors (NNDSVD). When these came from sums, over 55 cases of 22
  stored data sets, rank 3 to 40, a default fit ended on average .11 % above the lowest error of some twenty starts, at
  worst 1.9 %, and on four of them more than .01 % above scikit-learn's final error (at most .13 %). From a summary of
  its own rows, or of wide data from vectors that were turned once, it was .22 %, 4.0 %, and fifteen (at most 1.7 %), in
  1.17 of the time (geometric mean; MNIST took .73). With the mean of the data in the zeros of the parts (NNDSVDa) fits
  end as low, a little later; parts that are chosen by features alone, without their side of the rows, ended 11 % higher
  on one.
- On fewer features, often of many units (`wine`, `breast_cancer`), singular vectors end up to five times as high as a
  summary, from which one client begins there as several do.
- Sparse products in panels of 8, 16 or 25 columns, so that what is gathered or scattered stays in the second cache,
  took 1.3 to 3.5 times as long as whole rows: indices are then walked several times. Tiles of 500 to 10000 columns of X
  took 1.1 to 2.6 times as long to gather, and with a copy of X in that order .85: not worth twice the memory. Asking
  for rows before they are needed takes 13 % off the scattering, and nothing off the gathering. Sums in registers take
  40 % off the gathering (15.5 to 9 ms), and nothing off the scattering, which writes 1.6 GB: rows in whole lines took
  12.7 instead of 15.2 ms there, and more than that on matrices of few values a row.
- Threads share large work in pieces of a fourth of a share, and the one that calls takes those that another has not
  begun. Equal halves, of which the slower core decides, gave 1.02 and 1.24 beside other processes (load 2.3), two
  threads no faster than one. On a machine that had nothing else to do four runs of the dense table gave .60, .57, .57
  and .56, of the sparse one .63, .61, .60 and .61.
- Where a sparse round of one thread goes, in ms of 47 (load 5): scattering 16, sweeps 10, gathering 11, three grams 3
  (5 by BLAS), turning factors into another order 1 (3 number by number), the rest are passes over the two factors.
- Dense products are shared by our threads, and BLAS has one.
- A round on an H200 of 70000 x 784 pixels, k = 50, takes 2.4 to 2.7 ms, of which the device is busy for 1.8. The server
  looks at the loss of every round, so that only parts of a round are CUDA graphs.
- Ten clients begin by default at one upload of what each finds alone, which saves rounds, not seconds. Whole fits of
  ten clients take at most 1.5 times those of one on the tables above but for `digits`, even (1.67). How many rounds a
  fit takes is decided by little, and with it these ratios: sorted rows of `tdt2_top30` were 1.49, 1.53 and 1.51 in
  three runs, of counts 1.67 with another start of one client. In the profile above ten even clients of `digits` take 30
  ms more than one: 12 for the start (15 are the search of summaries), 6 in the engine and the estimator, 4 around their
  steps, 4 in sweeps, 2 at the server. Small clients are stepped side by side, each with its own products, so that they
  are those of other engines to the bit; a step of all ten takes 1.3 times one of one.
- Fewer iterations or restarts in that search change nothing but the luck of a fit: over 32 fits of ten clients (16 sets
  and ranks) eight such changes moved the mean error by at most .014 %, and the number of rounds by 5 to 23 %, up.
- Restarts on summaries went on one by one, and half of their time was waiting for the last step of a sweep. Eight side
  by side, one in each lane of a register, took `digits` from 64 to 54 ms (one client 29 to 26).
- One client finds singular vectors by itself, and uploads parts of them once: directions turn twice at an eighth of its
  rows, once at four million of its cells, and once at all. That takes as long as 1.8 to 4.7 rounds on the sets above;
  the five rounds of sums that it took before as long as 3.5 to 7.5 (of text of 18 847 documents 2.1 and 4.9, of `mnist`
  2.2 and 5.0, of `gene_all_aml` 2.8 and 7.5). Over 44 default fits (11 sets, rank 4 to 25) it ends on average .03 %
  lower than from these sums, at worst .48 % higher, in .88 of the time.
- In which minimum a fit of text ends is decided by little. Of starts by 60 seeds, all as near to the singular vectors,
  29 led `bbc_news` to scikit-learn's error within 60 rounds, 12 of these tf-idf too, three of them also counts; these
  three did so on all other sets, and the start draws from the first. Other fits end some hundredths of a percent above.
- Fewer passes over all rows miss more: with one, three of four fits of `scrna_hnsc_gse103322` ended 4 % higher. Spaces
  that remember all directions (Krylov) missed more often for the same passes.
- New pages for arrays of each round took up to a fifth of fits of wide or sparse data, until the allocator was shown a
  large array first, and kept what was freed.
- A round takes .2 to .5 ms where there is little to multiply, most of it in Python; an iteration of scikit-learn's
  loop takes .02 to .08 there. On the two smallest sets above the two are even: in medians of
  25 fits in turn `gene_all_aml` took 11.4 ms and scikit-learn 9.7, `tcga_breast_mrna` 7.6 and 7.1; on a machine with
  faster memory, best of seven, 7.9 and 8.7, 4.9 and 5.5.
- `implicit` takes .6 of the time of `exact-als` for an iteration: it ends each row after three steps of conjugate
  gradients, where ours solves it, and weighs entries that were not observed, which cost it nothing.
"""
GROWTH = """## Growth

A round of `exact` against one side at a time (4000 x 1000, k = 20, float32; sparse: 8000 x 8000; clients: one row of
100 features each, all in every round), on one thread, seconds of the processor; threads: 16000 rows, seconds of the
wall. Exponents are slopes of a line through the last three points, dashed in the picture.

![Seconds of a round against rows, features, rank, density, threads and clients](assets/growth.svg)

"""


def ratios(case: Case, line: dict[str, Any]) -> dict[str, float]:
    """Return what a case claims about, measured, by work; those that were not measured are missing."""
    if case.claim is None:
        return {}
    (work, _, floor), times = case.claim, line["seconds"]
    known = [name for name in (work, *case.also) if times.get(name) and times.get(floor)]
    return {name: times[name] / times[floor] for name in known}


def line(case: Case, result: dict[str, Any]) -> str:
    """One line for the terminal."""
    times = ", ".join(f"{name} {shown(s)}" for name, s in result["seconds"].items())
    found = ratios(case, result)
    claim = f"; {', '.join(f'{r:.3f}' for r in found.values())}, asked for at most {case.claim[1]}" if found else ""
    return f"{case.name}: {times}{claim}"


def shown(seconds: float | None) -> str:
    """Three digits and a unit."""
    if seconds is None:
        return "not reached"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _table(case: Case, result: dict[str, Any]) -> str:
    times = result["seconds"]
    first = next(iter(times.values()))
    rows = [f"| {n} | {shown(s)} | {f'{s / first:.2f}' if s is not None and first else ''} |" for n, s in times.items()]
    rows += [f"| {name} | {why} | |" for name, why in result["left_out"].items()]
    head = f"## {case.title}\n\n| | {result['clock']} | ratio |\n|---|---:|---:|\n"
    return head + "\n".join(rows) + "\n" + _claims(case, result)


def _claims(case: Case, result: dict[str, Any]) -> str:
    """Say what was claimed, and what was found."""
    times, text = result["seconds"], ""
    for name, found in ratios(case, result).items():
        work, most, floor = case.claim or ("", 0, "")
        text += (
            f"\n{name.capitalize()} over {floor}: **{found:.2f}**, asked for at most {most} (load {result['load']}).\n"
        )
        if name == work and case.overlapped and all(part in times for part in case.overlapped):
            longer = max(case.overlapped, key=times.__getitem__)
            text += f"Its floor is the longest of what it does at once: {longer}, {shown(times[longer])}; it takes "
            text += f"{times[work] / times[longer]:.2f} of that.\n"
    return text


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
    side, points = case.name.removeprefix("growth-"), ", ".join(map(shown, times))
    return f"| {side} | {sides[0]}, {sides[-1]} | {points} | {picture.slope(result):.2f} |"


def write(cases: list[Case], results: dict[str, dict[str, Any]]) -> None:
    """Write the page and its picture."""
    PAGE.write_text(text(cases, results))
    grown = {
        c.name.removeprefix("growth-"): results[c.name]
        for c in cases
        if c.name.startswith("growth-") and c.name in results
    }
    if grown:
        picture.draw(grown, PICTURE)
