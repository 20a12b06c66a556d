"""Where a whole fit spends its time: parts are timed as it runs, what one part calls of another belongs to that."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import peers

from cofactor import FederatedNMF
from cofactor.engines.inline import Inline
from cofactor.local import arrays
from cofactor.local.kernels import descent, one_pass
from cofactor.local.space import NonNegative
from cofactor.methods.one_shot import OneShot, Summarized
from cofactor.methods.spanned import Own, Spanned
from cofactor.methods.summed import Summed

PARTS: dict[str, list[tuple[Any, str]]] = {
    "checks of the data": [(arrays, "check"), (arrays, "row_squares")],
    "products with the data": [(arrays, "times_factor"), (arrays, "times_codes")],
    "sweeps, and what they are extrapolated to": [(descent, name) for name in ("hals", "hals_ahead", "extrapolate")],
    "both in one pass over the rows": [(one_pass, "improve")],
    "start, the rest of it": [(of, name) for of in (Spanned, Own, OneShot) for name in ("step", "aggregate")]
    + [(Summarized, "aggregate")],
    "clients, the rest of rounds": [(Summed, name) for name in ("join", "step", "steps")],
    "server, the rest of rounds": [(Summed, "aggregate")],
    "final codes, the rest": [(NonNegative, "refit")],
}
"""Functions whose time is that of a part."""
REST = "engine and estimator"


class Spent:
    """Seconds of the parts of one fit on one thread; a function that calls another part stands still meanwhile."""

    def __init__(self, fit: Callable[[], object]) -> None:
        self.fit, self.seconds = fit, dict.fromkeys(PARTS, 0.0)
        self._inside: list[list[float]] = []

    def whole(self) -> float:
        """Fit once; return the seconds of all of it."""
        plain = {(of, name): vars(of)[name] for part in PARTS.values() for of, name in part}
        self.seconds = dict.fromkeys(PARTS, 0.0)
        for part, functions in PARTS.items():
            for of, name in functions:
                setattr(of, name, self._timed(part, plain[of, name]))
        begin = time.process_time()
        try:
            self.fit()
        finally:
            for (of, name), function in plain.items():
                setattr(of, name, function)
        took = time.process_time() - begin
        self.seconds[REST] = took - sum(self.seconds.values())
        return took

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **given: Any) -> Any:
            inside = [0.0]
            self._inside.append(inside)
            begin = time.process_time()
            try:
                return function(*args, **given)
            finally:
                took = time.process_time() - begin
                self._inside.pop()
                self.seconds[part] += took - inside[0]
                if self._inside:
                    self._inside[-1][0] += took

        return call


def fits(name: str, k: int, clients: int = 1) -> dict[str, Any]:
    """A default fit of one or several clients, and its parts."""
    X = peers.rows_of(name)
    Xs: Any = X if clients == 1 else [X[i::clients] for i in range(clients)]
    spent = Spent(peers.quiet(lambda: FederatedNMF(k, random_state=0, engine=Inline(workers=1)).fit(Xs)))
    spent.whole()  # kernels are loaded
    parts = {part: (lambda part=part: spent.seconds[part]) for part in (*PARTS, REST)}
    return {"whole fit": spent.whole, **parts}
