"""What a client allows: a small file of its own, asked on the client's machine before anything leaves it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from cofactor import records
from cofactor.engines.flare_refusals import Refused
from cofactor.federation.terms import RunTerms, counts
from cofactor.files import atomic, held, read_toml
from cofactor.jobs.config import Config
from cofactor.method import Method
from cofactor.types import CofactorError

FILE, SPENT = "policy.toml", "spent.json"
TEXT = """# What this client allows. Every run is checked against this file here, before anything leaves.
# methods = ["exact", "oneshot"]   # allowed methods; without this line, all
least_rows = 1                     # refuse runs without noise if the data have fewer rows; others need an epsilon below
# epsilon = 1.0                    # largest epsilon of one run; those without noise are then refused, too
# total_epsilon = 3.0              # largest sum of the epsilons of all runs
delta = 1e-5                       # largest delta of one run, where there is a largest epsilon
private = false                    # true: only runs with an epsilon; it needs a largest one, above
# ledger = "site.jsonl"            # charge private runs here, too (`cofactor ledger new HOME/site.jsonl`)
secure = false                     # true: only runs with secure summation
keys = false                       # true: secure summation only with keys that clients have exchanged (HOME/keys)
curious = 1                        # least number of curious clients that private runs with secure summation reckon with
rank = 1000                        # largest number of components: memory for codes grows with rows x rank
rounds = 10000                     # largest number of rounds, and of whatever else is counted in options of a method
megabytes = 1024                   # largest message of a round
approval = false                   # true: a person here approves every run (`cofactor approve HOME RUN`)
"""


FIRST = 8
"""Rounds at the beginning of a run whose messages are all looked at; later ones are like those of their stage."""
EXACTLY = 1e-9
"""Costs are sums of rounded numbers: so much more than a limit, relatively, is the limit."""


def within(cost: float, limit: float | None) -> bool:
    """Whether a cost is no more than a limit, if there is one."""
    return limit is None or cost <= limit * (1 + EXACTLY)


@dataclass(frozen=True)
class Policy:
    """What a client allows; whatever is not allowed is refused with a fixed text."""

    methods: list[str] | None = None
    least_rows: int = 1
    epsilon: float | None = None
    total_epsilon: float | None = None
    delta: float = 1e-5
    private: bool = False
    ledger: str | None = None
    secure: bool = False
    keys: bool = False
    curious: int = 1
    rank: int = 1000
    rounds: int = 10_000
    megabytes: int = 1024
    approval: bool = False

    @classmethod
    def read(cls, home: Path) -> Policy:
        """Read the policy of a client; one that cannot be read allows nothing."""
        file = home / FILE
        values = read_toml(file, [f.name for f in fields(cls)], "the policy of this client")
        return records.decode(cls, values, str(file))

    def check(self, config: Config, home: Path, run: str) -> None:
        """Refuse a run that asks for what is not allowed."""
        if self.methods is not None and config.method not in self.methods:
            raise Refused("method")
        if self.secure and not config.secure:
            raise Refused("secure")
        self._check_sizes(config)
        limits = any(limit is not None for limit in (self.epsilon, self.total_epsilon, self.ledger))
        if config.privacy is None:
            if self.private or limits:
                raise Refused("private")
            return
        if config.privacy.insecure_seed is not None:
            if self.private or limits:
                raise Refused("private")
            return
        if (self.private or self.least_rows > 1) and not limits:  # else any epsilon would do to get around it
            raise Refused("limits")
        if not within(config.privacy.delta, self._most_delta):
            raise Refused("delta")
        if config.secure and config.privacy.curious < self.curious:
            raise Refused("curious")
        self._check_epsilon(config.privacy.epsilon, home, run)

    def _check_sizes(self, config: Config) -> None:
        """Refuse numbers that would take all memory or time of this machine."""
        if config.rank > self.rank:
            raise Refused("rank")
        if max(counts({"rounds": config.rounds, **config.options}), default=0) > self.rounds:
            raise Refused("rounds")

    def check_messages(self, method: Method, features: int, limit: int) -> None:
        """Refuse messages, or a factor, that are too large, before the first is made."""
        rounds = sorted({*method.traits.stages, *range(min(limit, FIRST)), limit - 1})
        shapes = [*(method.schema(features, t).values() for t in rounds), [(method.rank, features)]]
        if max(sum(math.prod(shape) for shape in those) for those in shapes) * 8 > self.megabytes << 20:
            raise Refused("size")

    @property
    def _most_delta(self) -> float | None:
        """The largest delta; with a larger one any epsilon is small, and hides nothing."""
        return self.delta if (self.epsilon, self.total_epsilon) != (None, None) else None

    def _check_epsilon(self, epsilon: float, home: Path, run: str) -> None:
        if not within(epsilon, self.epsilon):
            raise Refused("epsilon")
        others = math.fsum(value for name, value in spent(home).items() if name != run)
        if not within(others + epsilon, self.total_epsilon):
            raise Refused("total")

    def check_rows(self, rows: int, config: Config) -> None:
        """Refuse to take part with too few rows; where there is noise, one row more or less must not be told."""
        noise = config.privacy is not None and config.privacy.insecure_seed is None
        if not noise and rows < self.least_rows:
            raise Refused("rows")

    def check_cost(self, method: Method, home: Path, run: str, *, note: bool = True) -> None:
        """Check what a run will really cost, and ``note`` it, before anything of it leaves; its price stays.

        Of two runs at once the second one sees what the first one costs.
        """
        allowance = method.traits.allowance
        if allowance is None:
            return
        epsilon = float(allowance.total().epsilon)
        with held(home / f"{SPENT}.lock", f"{home / SPENT}, what private runs have cost"):
            self._check_epsilon(epsilon, home, run)
            before = spent(home).get(run)
            if before is not None and not math.isclose(before, epsilon, rel_tol=EXACTLY):
                raise Refused("terms")
            if note:
                told = json.dumps({**spent(home), run: epsilon}, indent=1)
                with atomic(home / SPENT) as file:
                    file.write(told.encode())

    def check_approved(self, home: Path, terms: RunTerms) -> None:
        """Wait for a person, if the policy says so: the run is described in a file, and answered in another.

        An answer is for the terms that the person has seen, whatever else comes under the same name.
        """
        if not self.approval:
            return
        folder = home / "runs" / terms.run
        folder.mkdir(parents=True, exist_ok=True)
        with atomic(folder / "asked.json") as file:
            file.write(json.dumps(terms.plain(), indent=1).encode())
        answer, seen = _answer(home, terms.run)
        if answer == "yes" and seen != terms.digest:
            raise Refused("terms")
        if answer != "yes":
            raise Refused("denied" if answer == "no" else "approval")


def spent(home: Path) -> dict[str, float]:
    """Return the epsilon of every private run that this client has taken part in."""
    file = home / SPENT
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def answer_of(home: Path, run: str) -> str:
    """Return what a person said about a run: yes, no, or nothing yet."""
    return _answer(home, run)[0]


def _answer(home: Path, run: str) -> tuple[str, str]:
    """Return what a person said, and to which terms."""
    file = home / "runs" / run / "approved.txt"
    answer, _, seen = (file.read_text(encoding="utf-8") if file.exists() else "").partition(" ")
    return answer.strip(), seen.strip()


def answer(home: Path, run: str, yes: bool) -> dict[str, Any]:
    """Say yes or no to a run that waits; return what it asks for."""
    asked = home / "runs" / run / "asked.json"
    if not asked.exists():
        waiting = [path.parent.name for path in home.glob("runs/*/asked.json") if not answer_of(home, path.parent.name)]
        raise CofactorError(
            f"run {run}: expected a run that waits for approval; found: {', '.join(waiting) or 'none'}."
        )
    told = json.loads(asked.read_text(encoding="utf-8"))
    with atomic(asked.parent / "approved.txt") as file:
        file.write(f"{'yes' if yes else 'no'} {RunTerms.read(told).digest}".encode())
    return told
