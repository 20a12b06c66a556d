"""From a configuration to a method: what will run, for how many rounds, and whether the data have room for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from cofactor.engines.history import Stop
from cofactor.local.columns import groups
from cofactor.method import Method
from cofactor.methods import catalog
from cofactor.runs import private
from cofactor.runs.config import Config
from cofactor.runs.inputs import Inputs
from cofactor.types import CofactorError

BOOLEAN_SWEEPS = 3


def make_method(config: Config, inputs: Inputs, *, clients: int | None = None) -> Method:
    """Build the method; clients that lack features need one that can leave them out."""
    setting: dict[str, Any] = {"clients": clients or len(inputs.data)}
    if config.blocked:
        return named_method(config, shape=inputs.data[0].whole, **setting)
    if inputs.known is None:
        return named_method(config, **setting)
    if config.method != "exact" or config.privacy:
        raise CofactorError(
            f"method {config.method!r} needs the same features at every client; "
            "use --features intersection, or --method exact with --features union."
        )
    return named_method(config, groups=groups(inputs.known, inputs.n_features), **setting)


def named_method(config: Config, *, clients: int = 1, **more: Any) -> Method:
    """Build the method of a configuration; Boolean, private and blocked ones take their plan from it."""
    options = {**config.options, **more}
    if config.blocked:
        options = {"iterations": config.rounds, **options}
    if config.boolean:
        options = {"sweeps": 0 if config.privacy else BOOLEAN_SWEEPS, **options}
    if (config.boolean or config.privacy) and "rounds" in catalog.options_of(config.method):
        options = {"rounds": config.rounds, **options}
    return catalog.make_for(
        config.method,
        config.rank,
        options,
        participants=private.participants(config, clients),
        rounds=config.rounds,
        privacy=config.privacy,
        secure=config.secure,
    )


def planned_rounds(config: Config) -> int | None:
    """Return the most rounds that a configuration will run; None for a stream, whose updates depend on the clients."""
    if streams(config):
        return None
    if config.blocked:  # an iteration takes two rounds, whatever the shape
        return named_method(config, shape=(1, 1)).rounds or config.rounds
    return min(config.rounds, named_method(config).rounds or config.rounds)


def streams(config: Config) -> bool:
    """Whether clients answer one by one: asynchronous methods, unless rounds are needed to hide or to draw clients."""
    plain = config.privacy is None and not config.secure and config.participation == 1
    return plain and config.method.startswith("asyn-")


def rounds_of(config: Config, method: Method) -> int:
    """Return the most rounds of a run; a method with a plan of its own runs all of it."""
    own = method.rounds or config.rounds
    return own if config.privacy or config.blocked else min(config.rounds, own)


def stop_of(config: Config) -> Stop:
    """Return the stop rule; methods with a plan of their own run all of it."""
    return Stop(0 if config.boolean or config.blocked or config.privacy else config.tol)


def check_sizes(config: Config, *, rows: int, n_features: int) -> None:
    """Refuse a rank or a picture that the data have no room for."""
    pixels = int(np.prod(config.image_shape or n_features))
    if config.rank > min(rows, n_features):
        raise CofactorError(
            f"rank: expected at most {min(rows, n_features)} (the smaller of {rows} rows and "
            f"{n_features} features), found {config.rank}."
        )
    if pixels != n_features:
        raise CofactorError(f"image: expected {n_features} pixels (the features), found {config.image}.")
