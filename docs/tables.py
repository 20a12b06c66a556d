"""The tables of the method catalog, made from the methods themselves.

python docs/tables.py           # print them
python docs/tables.py --write   # put them into docs/reference/methods.md
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cofactor import Privacy, run
from cofactor.data import synthetic
from cofactor.engines.contract import message_bytes
from cofactor.method import Method
from cofactor.methods import catalog
from cofactor.methods.spanned import BESIDE

PAGE = Path(__file__).parent / "reference" / "methods.md"
RANK, FEATURES = 9, 41
"""Small sizes at which k, k + 10, 2k, 3k, k(k+1)/2, the width of a sketch and numbers of their own all differ."""
EXAMPLE_RANK, EXAMPLE_FEATURES = 20, 2000
ROUNDS = 12

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "exact": [
        {"start": "own"},
        {"start": "svd"},
        {"start": "moments"},
        {"start": "lap"},
        {"start": "random"},
    ],
    "boolean-oneshot": [{"sweeps": 3}],
    **{
        name: [{"align": None}]
        for name in ("felb", "falb", "asso", "grecond", "mebf", "zhang", "elbmf")
    },
}
"""Options that change what a method sends; every method is listed with its defaults too."""


class Array(NamedTuple):
    """One array of a message: its name, shape in words of k and m, and bytes per entry."""

    name: str
    shape: tuple[str, ...]
    itemsize: int

    def __str__(self) -> str:
        """Write name and shape."""
        return _unbroken(f"`{self.name}` {' × '.join(self.shape) or 'number'}")


class Phase(NamedTuple):
    """Rounds in which a client sends the same arrays; ``first`` is the first of them, counted from 0."""

    rounds: str
    arrays: tuple[Array, ...]
    first: int
    nbytes: int


def _unbroken(text: str) -> str:
    """Return text that a browser does not break into lines."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def word(size: int, rank: int, features: int) -> str:
    """Return a size in words of the rank k and the number of features m; d is the width of a sketch, at least 4k.

    >>> word(21, 6, 41), word(12, 6, 41), word(18, 6, 41), word(41, 6, 41), word(24, 6, 41), word(5, 6, 41)
    ('k(k+1)/2', '2k', '3k', 'm', 'd', '5')
    >>> word(6 + BESIDE, 6, 41)
    '(k+10)'
    """
    triangles = {n * (n + 1) // 2: w for n, w in ((rank, "k"), (features, "m"))}
    words = {rank + BESIDE: f"(k+{BESIDE})"}
    words |= {rank: "k", 2 * rank: "2k", 3 * rank: "3k", features: "m"}
    words |= {size: f"{n}({n}+1)/2" for size, n in triangles.items()}
    return words.get(size, "d" if size >= 4 * rank else str(size))


def messages(
    method: Method, *, boolean: bool, features: int = FEATURES, clients: int = 2
) -> list[Any]:
    """Run a method over small float32 clients; return the first client's message of every round."""
    if boolean:
        X = synthetic.tiles(
            80, features, method.rank, width=(0.2, 0.4), noise=0.0
        ).X.astype(np.float32)
        Xs = [X[:40], X[40:]]
    else:
        Xs = [
            X.astype(np.float32)
            for X in synthetic.blocks(2, 40, features=features, rank=method.rank).Xs
        ]
    sent: list[Any] = []
    run(
        method,
        Xs[:clients],
        rounds=method.rounds or ROUNDS,
        watch=lambda t, answers: sent.append(answers[0].message),
    )
    return sent


def phases(method: Method, *, boolean: bool, clients: int = 2) -> list[Phase]:
    """Group the rounds of a method by what a client sends in them; names and shapes are those of its schema."""
    found: dict[tuple[Array, ...], list[int]] = {}
    sent = messages(method, boolean=boolean, clients=clients)
    for t, message in enumerate(sent):
        arrays = tuple(
            Array(
                name,
                tuple(word(n, RANK, FEATURES) for n in shape),
                np.asarray(message.arrays[name]).itemsize,
            )
            for name, shape in method.schema(FEATURES, t).items()
        )
        found.setdefault(arrays, []).append(t)
    last = method.rounds or math.inf
    return [
        Phase(
            _rounds(ts, len(sent), last), arrays, ts[0], message_bytes(sent[ts[0]])
        )
        for arrays, ts in found.items()
    ]


def _rounds(ts: list[int], seen: int, last: float) -> str:
    """Say which rounds, counted from 1 as people do.

    >>> _rounds([0], 5, 1), _rounds([0, 1, 2], 3, math.inf), _rounds([1, 2], 3, math.inf), _rounds([0, 2], 4, math.inf)
    ('1', 'every round', '2, 3, …', '1, 3, …')
    """
    breaks = [i for i, (a, b) in enumerate(pairwise(ts), start=1) if b > a + 1]
    runs = [ts[i:j] for i, j in pairwise([0, *breaks, len(ts)])]
    if len(runs) == 1 and last == math.inf and ts[-1] + 1 == seen:
        return "every round" if ts[0] == 0 else f"{ts[0] + 1}, {ts[0] + 2}, …"
    texts = [
        str(run[0] + 1) if len(run) == 1 else f"{run[0] + 1} to {run[-1] + 1}"
        for run in runs
    ]
    return ", ".join([*texts[:2], "…"] if len(texts) > 1 else texts)


def formula(arrays: Iterable[Array]) -> str:
    """Write the bytes of a message: the arrays, and eight for the weight.

    >>> formula([Array("factor", ("k", "m"), 4), Array("gram", ("k", "k"), 4), Array("loss", (), 8)])
    '4(km + k²) + 16'
    >>> formula([Array("factor", ("2k", "m"), 4), Array("gram", ("2k", "2k"), 4), Array("errors", ("6",), 8)])
    '4(2km + 4k²) + 56'
    """
    rest, terms = 8, Counter()
    for array in arrays:
        shape = [size for size in array.shape if not size.isdigit()]
        number = math.prod(int(size) for size in array.shape if size.isdigit())
        if shape:
            term = "".join(shape).replace("2k2k", "4k²").replace("3k3k", "9k²")
            term = term.replace("kk", "k²")
            terms[array.itemsize, term] += number
        else:
            rest += array.itemsize * number
    groups: dict[int, list[str]] = {}
    for (itemsize, term), count in terms.items():
        groups.setdefault(itemsize, []).append(
            term if count == 1 else f"{count}{term}"
        )
    parts = [_scaled(itemsize, group) for itemsize, group in groups.items()]
    return " + ".join([*parts, str(rest)])


def _scaled(itemsize: int, terms: list[str]) -> str:
    if itemsize == 1:
        return " + ".join(terms)
    alone = len(terms) == 1 and not terms[0][0].isdigit()
    return f"{itemsize}{terms[0]}" if alone else f"{itemsize}({' + '.join(terms)})"


def evaluate(text: str, rank: int, features: int, sketch: int = 0) -> int:
    """Compute a formula.

    >>> evaluate("4(km + k(k+1)/2) + 16", 3, 11), evaluate("4kd + 16", 3, 11, 5), evaluate("4(k+10)m + 8", 3, 11)
    (172, 76, 580)
    """
    code = text.replace("k²", "k*k").replace("km", "k*m").replace("kd", "k*d")
    code = re.sub(r"(?<=[\dkmd)])(?=[(km])", "*", code)
    return math.floor(
        eval(code, {"__builtins__": {}}, {"k": rank, "m": features, "d": sketch})
    )


def needed(name: str) -> dict[str, Any]:
    """Return the options without which a method cannot be made."""
    if name in catalog.names("blocks"):
        return {"shape": (FEATURES, FEATURES)}
    private = name in catalog.names("private")
    return {"privacy": Privacy(epsilon=1, delta=1e-6)} if private else {}


def overview(names: list[str]) -> str:
    """Return the table of names: what a method is, how many rounds it has, whether sums are enough, its options."""
    lines = [
        "| name | what it is | rounds | sums only | options |",
        "|---|---|---|---|---|",
    ]
    for name in names:
        entry, method = catalog.find(name), catalog.make(name, RANK, **needed(name))
        sums = [
            f"{o}={v}"
            for made in VARIANTS.get(name, [])
            for o, v in made.items()
            if _additive(name, made)
        ]
        options = ", ".join(f"`{option}`" for option in entry.options)
        rounds = "many" if method.rounds is None else str(method.rounds)
        rounds = (
            f"2 · `iterations` + 1 ({rounds})"
            if name in catalog.names("blocks")
            else rounds
        )
        otherwise = f"with {' or '.join(sums)}" if sums else "no"
        only = "yes" if method.traits.additive else otherwise
        lines.append(
            f"| `{name}` | {entry.what} | {rounds} | {only} | {options or 'none'} |"
        )
    return "\n".join(lines)


def _additive(name: str, options: dict[str, Any]) -> bool:
    return catalog.make(name, RANK, **options).traits.additive


def traffic(names: list[str], *, boolean: bool) -> str:
    """Return the table of messages; methods that send the same share a line."""
    grouped: dict[tuple[tuple[Phase, int], ...], list[str]] = {}
    for name in names:
        for options in [{}, *VARIANTS.get(name, [])]:
            label = f"`{name}`" + "".join(
                f" {option}={value}" for option, value in options.items()
            )
            small, large = (
                catalog.make(name, rank, **options) for rank in (RANK, EXAMPLE_RANK)
            )
            clients = 1 if options.get("start") == "own" else 2
            found = phases(small, boolean=boolean, clients=clients)
            key = tuple((phase, _example(large, phase)) for phase in found)
            labels = grouped.setdefault(key, [])
            if f"`{name}`" not in labels:
                labels.append(label)
    example = f"k = {EXAMPLE_RANK}, m = {EXAMPLE_FEATURES}"
    lines = [
        f"| method | round | a client sends | bytes | {example} |",
        "|---|---|---|---|---:|",
    ]
    for sizes, labels in grouped.items():
        for i, (phase, nbytes) in enumerate(sizes):
            arrays = ", ".join(map(str, phase.arrays))
            size = f"{nbytes:,}".replace(",", " ")
            text = formula(phase.arrays)
            cells = (
                ", ".join(labels) if i == 0 else "",
                phase.rounds,
                arrays,
                _unbroken(text),
                _unbroken(size),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _example(method: Method, phase: Phase) -> int:
    """Return the bytes of a message for the example sizes, from the schema of the method."""
    shapes = method.schema(EXAMPLE_FEATURES, phase.first)
    return 8 + sum(
        array.itemsize * math.prod(shapes[array.name]) for array in phase.arrays
    )


def tables() -> dict[str, str]:
    """Return every table of the page by the name of its place."""
    return {
        "names": overview(catalog.names()),
        "messages": traffic(catalog.names(), boolean=False),
        "gap-names": overview(catalog.names("gaps")),
        "private-names": overview(catalog.names("private")),
        "blocked-names": overview(catalog.names("blocks")),
        "boolean-names": overview(catalog.names("boolean")),
        "boolean-messages": traffic(catalog.names("boolean"), boolean=True),
        "masked-names": overview(catalog.names("ratings")),
        "cluster-names": overview(catalog.names("clusters")),
    }


def put(page: str, made: dict[str, str]) -> str:
    """Put the tables between their marks ``<!-- table: name -->`` and ``<!-- end -->``."""
    for name, table in made.items():
        begin = f"<!-- table: {name} -->\n"
        head, _, tail = page.partition(begin)
        page = f"{head}{begin}\n{table}\n\n<!-- end -->{tail.partition('<!-- end -->')[2]}"
    return page


if __name__ == "__main__":
    made = tables()
    if "--write" in sys.argv:
        PAGE.write_text(put(PAGE.read_text(), made))
    else:
        print("\n\n".join(made.values()))
