"""What a run of a federation is: told to the server and to every client in one small JSON, and built alike by both."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from cofactor import __version__, records
from cofactor.engines.flare_clients import Patience
from cofactor.files import read_toml
from cofactor.jobs.config import Config
from cofactor.methods.build import AUTO, Facts, Ready, ready, settle
from cofactor.types import CofactorError, unknown

NOT_HERE = ("split", "group_by", "ratings", "holdout", "label", "leave_out", "scheduler")
"""Settings about files, which are the clients' own here."""
MOST = 10**5
"""Larger ranks, rounds or numbers in options are refused before a method is made of them, which would take memory."""


@dataclass(frozen=True)
class RunTerms:
    """A run: its name, which is never used again, its settings, its clients in order, and how long they are awaited.

    ``after`` names a run of the same server that this one goes on from, with fewer clients or more: with the uploads
    that were kept of the others, or from its factor.
    """

    run: str
    config: Config
    patience: Patience = field(default_factory=Patience)
    version: str = __version__
    after: str = ""

    @property
    def names(self) -> list[str]:
        """The clients."""
        return self.config.inputs

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        waits = {name: value for name, value in asdict(self.patience).items() if value not in (None, math.inf)}
        config = {name: value for name, value in asdict(self.config).items() if value is not None}
        told = {"run": self.run, "version": self.version, "config": config, "patience": waits}
        return {**told, "after": self.after} if self.after else told

    @property
    def digest(self) -> str:
        """What tells a run from every other one of its name: all that a person approves and a budget is for.

        How long clients are awaited may change, and so may the clients, but not where noise or masks are made for them.
        """
        told = self.plain()
        kept = told["config"]
        if self.config.privacy is None and not self.config.secure:
            kept = {name: value for name, value in kept.items() if name != "inputs"}
        text = json.dumps([self.run, self.after, kept], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def read(cls, told: Any) -> RunTerms:
        """Read what was told; every field is checked."""
        match told:
            case {"run": str(run), "version": str(version), "config": dict(config), "patience": dict(waits), **rest}:
                after: Any = rest.pop("after", "")
                few = max(counts({**config, **_options(config)}), default=0) <= MOST
                if not rest and few and _is_name(run) and (after == "" or _is_name(after)):
                    return cls(run, records.decode(Config, config, "config"), _patience(waits), version, after)
        raise CofactorError("expected the terms of a run, found something else.")

    def made(self, facts: Facts) -> Ready:
        """Return the method and the plan, the same for the server and every client."""
        config, options = self.config, self.config.method_options
        if self.after and config.method == "exact":
            options = {**options, "start": "random"}  # it begins at a factor that there is
        return ready(config.method, config.rank, config.plan, facts, options)

    def without(self, run: str, clients: list[str]) -> RunTerms:
        """Return the terms of a run over the others, which begins anew under another name."""
        others = [name for name in self.names if name not in clients]
        return replace(self, run=run, config=replace(self.config, inputs=others))

    def joined_by(self, clients: list[str]) -> RunTerms:
        """Return the terms of the same run with clients that come late, after the others."""
        return replace(self, config=replace(self.config, inputs=[*self.names, *clients]))


def counts(settings: Mapping[str, Any]) -> list[int]:
    """Return the whole numbers among settings, but for those that count nothing that is held here."""
    known = {name: value for name, value in settings.items() if name not in ("seed", "insecure_noise_seed", "rows")}
    return [value for value in known.values() if isinstance(value, int)]


def _options(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of the method, as far as they are any."""
    return options if isinstance(options := config.get("options"), dict) else {}


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and text.isalnum() and len(text) <= 64


def _patience(waits: dict[str, Any]) -> Patience:
    known = [f.name for f in fields(Patience)]
    for name, value in waits.items():
        if name not in known:
            raise unknown("setting of the federation", name, known)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise CofactorError(f"{name}: expected a positive number, found {value!r}.")
    return Patience(**waits)


def read_config(path: Path, names: list[str]) -> tuple[Config, Patience]:
    """Read a TOML configuration of a run over these clients; ``[federation]`` says how long they are awaited."""
    values = read_toml(path, [*(f.name for f in fields(Config) if f.name not in NOT_HERE), "federation"])
    waits = _patience(values.pop("federation", {}))
    clients = values.get("inputs", names)
    for name in clients:
        if name not in names:
            raise CofactorError(f"{path}: inputs: {unknown('client', name, names)}")
    return settled({**values, "inputs": clients, "engine": "flare"}), waits


def settled(values: dict[str, Any]) -> Config:
    """Return the configuration of a run over clients whose data nobody else sees."""
    config = records.decode(Config, values, "run")
    for name in NOT_HERE:
        if getattr(config, name):
            raise CofactorError(f"{name}: expected none in a federation, whose clients have their own data.")
    if config.kind in ("ratings", "blocks"):
        raise CofactorError(
            f"method {config.method!r}: expected a method for rows of clients, found one of {config.kind}."
        )
    if config.method == AUTO:
        chosen = settle(AUTO, config.rank, config.plan, Facts(2, 1, 1))
        config = replace(config, method=chosen.method, why=chosen.why)
    return config
