"""The cost model: bytes and operations of one round of every method, as formulas that the docs print and tests check.

python docs/costs.py           # print the tables
python docs/costs.py --write   # put them into docs/scaling.md

Letters: n rows of all clients, m features, k the rank, c clients, b bytes of a number (4 or 8), s sweeps or steps,
r local iterations, q observed entries; a sketch keeps d of the m features and e of the n rows.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cofactor.local.sketch import size_of
from cofactor.method import Method
from cofactor.methods import catalog
from cofactor.methods.summed import sweeps_at

PAGE = Path(__file__).parent / "scaling.md"
When = Callable[[int, int], bool]
"""Whether round t, of a method whose last round is ``last`` (or -1), is meant."""


@dataclass(frozen=True)
class Line:
    """What a round of some methods costs: bytes up and down for each client, operations of all clients together."""

    names: tuple[str, ...]
    rounds: str
    up: str
    down: str
    flops: str
    when: When = lambda t, last: True


def first(t: int, last: int) -> bool:
    """The first round."""
    return t == 0


def later(t: int, last: int) -> bool:
    """All rounds but the first."""
    return t > 0


FNMF = tuple(name for name in catalog.names() if name.startswith("fnmf"))
SEARCHES = ("asso", "grecond", "mebf", "zhang", "elbmf")
BLOCKED = tuple(catalog.names("blocks"))
SWEEP = "s*(4*n*m*k + 4*n*k**2 + 4*c*m*k**2)"
SUMS = "4*n*m*k + 2*(s+1)*n*k**2 + 2*(c+s)*m*k**2"
WIDE_SUMS = "12*n*m*k + 18*(s+1)*n*k**2 + 18*(c+s)*m*k**2"
"""The same at three times the rank."""
START = "52*n*m*k + 192*n*k**2 + 48*(c+3)*m*k**2"
"""Six rounds of three sweeps at twice the rank, and one product; of more than 2048 features only 1024 take part."""
SEARCH = ""
"""A search over bits has no count of operations that depends on the sizes alone."""

LINES = [
    Line(("exact",), "1", "b*(2*k*m + 4*k**2) + 16", "b*k*m", START, first),
    Line(
        ("exact",), "2, 3, …", "b*(k*m + k*(k+1)/2) + 16", "b*k*m + 9", SUMS, later
    ),
    Line(("oneshot",), "1", "b*(k*m + k**2) + 16", "b*k*m", f"r*({SUMS})"),
    Line(
        ("consensus",), "1", "b*(3*k*m + 9*k**2) + 16", "b*k*m", f"r*({WIDE_SUMS})"
    ),
    Line(("shared-own",), "1", "b*(2*k*m + 4*k**2) + 16", "b*k*m", START, first),
    Line(
        ("shared-own",),
        "2, 3, …",
        "b*(k*m + k*(k+1)/2) + 16",
        "b*k*m + 9",
        SUMS,
        later,
    ),
    *(
        Line(
            ("exact-gaps",),
            f"{first_round + 1} to {first_round + 5}",
            f"b*{2 * runs}*k*m + {8 * runs + 8}",
            f"b*{runs}*k*m + {16 * runs}" if runs > 1 else "b*k*m + 16",
            f"{16 * runs}*n*m*k",
            lambda t, last, begins=first_round: begins <= t < begins + 5,
        )
        for first_round, runs in ((0, 8), (5, 4), (10, 2), (15, 1))
    ),
    Line(
        ("exact-gaps",),
        "21, 22, …",
        "b*2*k*m + 16",
        "b*k*m + 8",
        "16*n*m*k",
        lambda t, last: t >= 20,
    ),
    Line(("exact-beta",), "1", "b*(2*k*m + 4*k**2) + 16", "b*k*m", START, first),
    Line(
        ("exact-beta",),
        "2, 3, …",
        "b*(k*m + k) + 16",
        "b*k*m + 8",
        "16*n*m*k",
        later,
    ),
    Line(
        (*FNMF, "fedavg", "fedprox", "syn-sd", "asyn-sd"),
        "every",
        "b*k*m + 16",
        "b*k*m",
        SWEEP,
    ),
    Line(("ipalm", "mur"), "1", "b*k*m + 16", "b*k*m", SWEEP),
    Line(("oneshot-lap",), "1", "b*k*m + 16", "b*k*m", f"r*({SUMS})"),
    Line(
        ("fedmavg",),
        "every",
        "b*k*m + 16",
        "b*k*m",
        "4*n*m*k + 2*s*n*k**2 + 2*r*c*m*k**2",
    ),
    Line(
        ("fedmgs",),
        "every",
        "b*(k*m + k*(k+1)/2) + 16",
        "b*k*m",
        "4*n*m*k + 2*s*n*k**2 + 2*c*m*k**2",
    ),
    Line(
        ("syn-ssd-v", "asyn-ssd-v"),
        "every",
        "b*k*m + 16",
        "b*k*m",
        "s*(2*n*m*k + 2*e*m*k + 2*(n+e)*k**2 + 4*c*m*k**2)",
    ),
    *(
        Line((name,), rounds, up, down, flops, when)
        for name, flops in (
            ("syn-ssd-u", "2*n*(m+d)*k + 4*n*k**2 + 2*c*(m+d)*k**2"),
            ("syn-ssd-uv", "2*(n*d+e*m)*k + 2*(n+e)*k**2 + 2*c*(m+d)*k**2"),
        )
        for rounds, up, down, when in (
            ("1", "b*k*m + 16", "b*k*m + 8", first),
            ("2, 7, …", "b*k*d + 16", "b*k*m + 8", lambda t, last: t % 5 == 1),
            (
                "3 to 5, 8 to 10, …",
                "b*k*d + 16",
                "b*k*(m+d) + 8",
                lambda t, last: t % 5 > 1,
            ),
            (
                "6, 11, …",
                "b*k*m + 16",
                "b*k*(m+d) + 8",
                lambda t, last: t > 0 and t % 5 == 0,
            ),
        )
    ),
    Line(BLOCKED, "1", "b*k*d + 48", "8", "0", first),
    Line(
        BLOCKED,
        "2, 4, …",
        "b*k*e + 16",
        "b*k*d + 8",
        "2*n*d*k + 2*n*k**2 + 2*c*d*k**2",
        lambda t, last: t % 2 == 1,
    ),
    Line(
        BLOCKED,
        "3, 5, …",
        "b*k*d + 16",
        "b*k*e + 8",
        "2*e*m*k + 2*m*k**2 + 2*c*e*k**2",
        lambda t, last: 0 < t < last and t % 2 == 0 and t % 20 > 0,
    ),
    Line(
        BLOCKED,
        "21, 41, …, last",
        "b*k*m + 16",
        "b*k*e + 8",
        "2*e*m*k + 2*m*k**2 + 2*c*e*k**2",
        lambda t, last: 0 < t and (t == last or t % 20 == 0),
    ),
    Line(("boolean-oneshot",), "1", "k*m + 8*k + 16", "8*k*m", SEARCH),
    Line(SEARCHES, "1", "k*m + 16", "8*k*m", SEARCH),
    Line(
        ("boolean-exact",), "every", "b*(k*m + k*(k+1)/2) + 16", "b*k*m + 9", SUMS
    ),
    Line(("felb", "falb"), "every", "b*k*m + 16", "b*k*m", SWEEP),
    Line(("exact-als", "masked-fedmavg"), "1", "32", "b*(k+3)*m", "0", first),
    Line(
        ("exact-als",),
        "2, 3, …",
        "b*m*((k+1)*(k+2)/2 + k+1) + 16",
        "b*(k+3)*m",
        "4*q*(k+1)**2 + (n+m)*(k+1)**3/3",
        later,
    ),
    Line(
        ("masked-fedmavg",),
        "2, 3, …",
        "b*m*(k+2) + 24",
        "b*(k+3)*m",
        "2*q*(k+1)**2 + n*(k+1)**3/3",
        later,
    ),
]


def names() -> list[str]:
    """Return every name of the catalog."""
    kinds = ("real", "blocks", "boolean", "ratings")
    return [name for kind in kinds for name in catalog.names(kind)]


def made(name: str, n: int, m: int, k: int, **options: Any) -> Method:
    """Build a method for a matrix of this shape."""
    shape = {"shape": (n, m)} if name in BLOCKED else {}
    return catalog.make(name, k, **shape, **options)


def sizes(
    name: str, n: int, m: int, k: int, c: int, *, b: int = 4
) -> dict[str, float]:
    """Return the letters of the formulas for a method with its default options."""
    method, letters = made(name, n, m, k), {"n": n, "m": m, "k": k, "c": c, "b": b}
    entry = catalog.find(name)
    steps = [
        entry.default(o) or sweeps_at(m, 0)
        for o in ("sweeps", "steps", "code_steps")
        if o in entry.options
    ]
    letters |= {"d": m, "e": n, "s": max(steps, default=1), "r": 200, "q": n * m}
    if name in BLOCKED:
        letters["d"], letters["e"] = (
            method.schema(m, t)["product"][1] for t in (0, 1)
        )
    elif "ssd" in name:
        letters["d"] = size_of(0.1, m, k)
        letters["e"] = c * size_of(0.1, n // c, k) if name.endswith("v") else n
    return letters


def lines(name: str) -> list[Line]:
    """Return the lines of a method."""
    return [line for line in LINES if name in line.names]


def cost(
    name: str, t: int, last: int, letters: dict[str, float]
) -> dict[str, float]:
    """Return what round t costs: ``up``, ``down`` (bytes of a client) and ``flops`` (of all)."""
    (line,) = (line for line in lines(name) if line.when(t, last))
    formulas = {"up": line.up, "down": line.down, "flops": line.flops or "nan"}
    return {what: float(evaluate(text, letters)) for what, text in formulas.items()}


def evaluate(text: str, letters: dict[str, float]) -> float:
    """Compute a formula.

    >>> evaluate("b*(k*m + k*(k+1)/2) + 16", {"b": 4, "k": 3, "m": 5})
    100.0
    """
    return eval(text, {"__builtins__": {}}, {**letters, "nan": math.nan})


def pretty(text: str) -> str:
    """Write a formula as people do.

    >>> pretty("2*(n*d+e*m)*k**2")
    '2(nd+em)k²'
    """
    text = re.sub(r"\*\*(\d)", lambda found: "²³"[int(found[1]) - 2], text)
    return text.replace("*", "").replace(" ", "\N{NO-BREAK SPACE}") or "a search"


def formulas() -> str:
    """Return the table of all formulas; methods that cost the same share a line."""
    out = [
        "| method | round | bytes up | bytes down | operations |",
        "|---|---|---|---|---|",
    ]
    before: tuple[str, ...] = ()
    for line in LINES:
        label = (
            ""
            if line.names == before
            else ", ".join(f"`{name}`" for name in line.names)
        )
        cells = (label, line.rounds, *map(pretty, (line.up, line.down, line.flops)))
        out.append(f"| {' | '.join(cells)} |")
        before = line.names
    return "\n".join(out)


RATE, CORES, BANDWIDTH, LATENCY, DISK = 70e9, 16, 12.5e9, 5e-6, 2e9
"""Operations of a core (measured), cores of a node, bytes a second of its network and disk (assumed), seconds."""


@dataclass(frozen=True)
class Projection:
    """What a round (of methods on blocks: an iteration) takes on c nodes with one client each, in float32."""

    compute: float
    network: float
    traffic: float
    memory: float
    reading: float


def project(
    name: str, n: int, m: int, k: int, c: int, **options: Any
) -> Projection:
    """Project a round in the middle of a run; sums travel as float64, in a ring or a tree of all nodes."""
    letters = sizes(name, n, m, k, c, b=4)
    if (size := options.get("size")) is not None:
        letters |= {"d": size, "e": size}
    steps = (2, 3) if name in BLOCKED else (3,)
    flops = sum(cost(name, t, 99, letters)["flops"] for t in steps)
    traffic = sum(cost(name, t, 99, {**letters, "b": 8})["up"] for t in steps)
    network = 2 * traffic / BANDWIDTH + 2 * len(steps) * math.log2(c) * LATENCY
    copies = 2 if name in BLOCKED else 1
    data = copies * 4 * n * m / c
    # codes and their update; the widest sum twice, in double precision
    memory = data + 2 * 4 * k * (n / c + (m if copies == 1 else m / c))
    memory += 2 * 8 * k * max(letters["d"], letters["e"] if copies == 2 else 0)
    return Projection(
        flops / (c * CORES * RATE), network, traffic, memory, data / DISK
    )


TALL, SQUARE = (10**9, 2000, 50, 1000), (10**6, 10**6, 50, 1000)


def projection() -> str:
    """Return the table of projections to a thousand nodes."""
    cases = [
        ("`exact`", "exact", TALL, {}),
        ("`hals`", "hals", TALL, {}),
        ("`dsanls`, 0.1 of the rows", "dsanls", TALL, {}),
        ("`exact`", "exact", SQUARE, {}),
        ("`hals`", "hals", SQUARE, {}),
        ("`dsanls`, 0.03 of both sides", "dsanls", SQUARE, {}),
        ("`dsanls`, `size=2000`", "dsanls", SQUARE, {"size": 2000}),
    ]
    head = "| matrix | method | compute, s | network, s | sent by a node | memory of a node | first read, s |"
    out = [head, "|---|---|---:|---:|---:|---:|---:|"]
    for label, name, sizes_, options in cases:
        found = project(name, *sizes_, **options)
        shape = " × ".join(_power(side) for side in sizes_[:2])
        cells = (
            shape,
            label,
            _short(found.compute),
            _short(found.network),
            _bytes(found.traffic),
        )
        out.append(
            f"| {' | '.join(cells)} | {_bytes(found.memory)} | {_short(found.reading)} |"
        )
    return "\n".join(out)


def _power(side: int) -> str:
    return (
        f"10{'⁰¹²³⁴⁵⁶⁷⁸⁹'[round(math.log10(side))]}" if side > 10**5 else str(side)
    )


def _short(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:.0f}"


def _bytes(count: float) -> str:
    """Write a number of bytes for people.

    >>> _bytes(2_500_000), _bytes(8e9)
    ('2.5 MB', '8 GB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            return f"{count:.3g} {unit}"
        count /= 1000
    return ""


def tables() -> dict[str, str]:
    """Return every table of the page by the name of its place."""
    return {"costs": formulas(), "projection": projection()}


if __name__ == "__main__":
    found = tables()
    if "--write" in sys.argv:
        sys.path.insert(0, str(Path(__file__).parent))
        from tables import put

        PAGE.write_text(put(PAGE.read_text(), found))
    else:
        print("\n\n".join(found.values()))
