"""What is measured: one entry for each case. Works of a case are called in turn, over and over, in one process.

The first work of a case is its floor: what the hardware asks for, such as the bare products. A work whose peer is not
installed is left out, and named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import first
import growth
import matrices
import peers
import spent
import works

Works = dict[str, Callable[[], object] | str]
"""What is called; or, in words, why it is not."""


@dataclass(frozen=True)
class Case:
    """``make`` returns the works; ``claim`` is (work, at most so many times, of which work).

    Works that are over before ``least`` seconds are called again under the same clock. What is claimed holds for
    those in ``also``, too. Where the claimed work does two things at once, ``overlapped`` are
    these: the longer one is its floor.
    """

    name: str
    title: str
    make: Callable[[], Works]
    claim: tuple[str, float, str] | None = None
    repeats: int = 5
    threads: int = 1
    clock: str = "cpu"
    full: bool = False
    least: float = 0.0
    overlapped: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


def rounds() -> Iterator[Case]:
    """A round next to the products in it."""
    for dtype, most in (("float64", 1.08), ("float32", 1.10)):
        title = f"dense 20000 x 2000, k = 50, {dtype}, one thread"
        yield Case(
            f"round-{dtype}",
            title,
            lambda d=dtype: works.exact(matrices.dense(d), 50),
            ("round", most, "products"),
            15,
        )
    title = "dense 20000 x 2000, k = 50, float32: threads"
    yield Case("threads", title, works.threaded_dense, ("two threads", 0.58, "one thread"), threads=2, clock="wall")
    title = "sparse 20000 x 20000, density .005, k = 50, float64, one thread"
    yield Case("sparse", title, lambda: works.exact(matrices.sparse(), 50), ("round", 1.2, "scipy's products"))
    title = "the same, threads"
    yield Case("sparse-threads", title, works.threaded_sparse, ("two threads", 0.65, "scipy's products"), 5, 2, "wall")
    for name, n, m in (
        ("fnmf-lap", 5000, 1000),
        ("felb", 5000, 1000),
        ("dsanls", 6000, 6000),
        ("dsanls", 20000, 20000),
    ):
        yield Case(
            f"round-{name}-{n}",
            f"`{name}`, {n} x {m}{', ten iterations' if name == 'dsanls' else ''}, k = 30",
            lambda of=(name, n, m): works.contained(*of),
            ("round", 1.25, "products"),
            repeats=9,
            full=n > 6000,
        )


RACED = [
    *(("cbcl_faces", 20), ("mnist", 30), ("newsgroups20", 20), ("newsgroups20-tfidf", 20), ("tdt2_top30", 20)),
    *(("bbc_news", 20), ("news_3windows", 10), ("americas_small", 10), ("yaleb_32x32", 16), ("fashion_mnist", 20)),
    *(("cifar10_test2500", 16), ("scrna_pbmc68k_reduced", 10), ("scrna_hnsc_gse103322", 10), ("gene_all_aml", 5)),
    *(("tcga_breast_mrna", 8), ("adult_onehot", 10), ("mushroom", 10), ("movielens_latest_small", 10)),
]
"""Data sets and ranks of the races to scikit-learn's final error."""

TEN = [
    *(("digits", 16), ("cbcl_faces", 20), ("newsgroups20", 20), ("newsgroups20-tfidf", 20), ("tdt2_top30", 20)),
    ("mnist", 30),
]
"""Data sets and ranks of whole fits of ten clients and of one."""

CASES: list[Case] = [
    *rounds(),
    *(
        Case(
            f"file-{rows // 250}GB",
            f"{rows // 250} GB float32 npy in the page cache: a round",
            lambda rows=rows: works.from_disk(rows),
            ("round, k = 10, two threads", 1.3, "read"),
            clock="wall",
            full=rows > 250,
            overlapped=("read, 4 MB at a time", "products, k = 10, two threads"),
        )
        for rows in (250, 1000)
    ),
    Case(
        "iteration",
        "one iteration, 4000 x 1000, k = 20, float32",
        lambda: peers.iterations(matrices.small(), 20),
        least=0.1,
    ),
    Case(
        "error-digits",
        "to scikit-learn's final error: digits, k = 16",
        lambda: peers.races("digits", 16, all_peers=True),
        repeats=3,
    ),
    *(
        Case(
            f"error-{name}",
            f"to scikit-learn's final error: {name}, k = {k}",
            lambda n=name, k=k: peers.races(n, k),
            None,
            3,
            full=True,
        )
        for name, k in RACED
    ),
    *(
        Case(
            f"ten-{name}",
            f"whole default fits to their own ends: {name}, k = {k}",
            lambda n=name, k=k: peers.ten(n, k),
            ("ten clients, even", 1.5, "one client"),
            3,
            full=name != "digits",
            also=("ten clients, sorted",),
        )
        for name, k in TEN
    ),
    *(
        Case(
            f"profile-{name}-{clients}",
            f"where a default fit spends its time: {name}, k = {k}, {'one client' if clients == 1 else 'ten clients'}",
            lambda n=name, k=k, c=clients: spent.fits(n, k, c),
            full=name != "digits",
            repeats=3,
        )
        for name, k in (("digits", 16), ("mnist", 30), ("newsgroups20", 20))
        for clients in (1, 10)
    ),
    Case("ratings", "one iteration on 100 000 ratings, 600 x 9000, k = 16", peers.ratings),
    Case("consensus", "20 starts for a consensus, 2000 x 300, k = 8", peers.consensus, repeats=3),
    Case("barycenter", "barycenter of 20 factors, 10 x 200", peers.barycenters, least=0.05),
    Case("import", "import, a new process each", works.imports, clock="wall", repeats=3),
    Case("first", "first fits, a new process each", first.fits, repeats=2, full=True),
    Case("command", "`cofactor fit` of a toy, a new process each", works.commands, None, 5, clock="wall"),
    *(
        Case(
            f"growth-{name}",
            f"growth with {name}",
            make,
            repeats=5,
            least=0.1,
            clock="wall" if name == "threads" else "cpu",
            full=name == "clients",
        )
        for name, make in growth.SIDES.items()
    ),
]
