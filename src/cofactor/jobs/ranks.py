"""The rank scan over files."""

from __future__ import annotations

from collections.abc import Sequence

from cofactor.jobs.config import Config
from cofactor.jobs.place import Place
from cofactor.jobs.reading import read
from cofactor.records import RankScan
from cofactor.select import RankScan as Found
from cofactor.select import select_rank
from cofactor.types import CofactorError


def scan_ranks(config: Config, ranks: Sequence[int], *, seeds: int = 3) -> Found:
    """Scan ranks over the inputs of a configuration."""
    _, inputs = read(config, Place())
    if inputs.known is not None:
        raise CofactorError("a rank scan needs the same features at every client; use --features intersection.")
    return select_rank(inputs.data, ranks, seeds=seeds, seed=config.seed)


def record(scan: Found) -> RankScan:
    """Return a scan as a run folder holds it."""
    found = scan.to_dict()
    return RankScan(
        ranks=found["ranks"],
        heldout_mean=found["heldout"],
        heldout_std=found["heldout_std"],
        training_error=found["training"],
        seed_stability=found["seed_stability"],
        client_stability=found["client_stability"],
        suggestion=scan.suggestion,
        reason=scan.reason,
    )
