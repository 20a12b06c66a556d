"""The rank scan over files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cofactor.boolean import are_bits
from cofactor.jobs import preparing, rated_ranks
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.place import Place
from cofactor.jobs.reading import read
from cofactor.local import arrays
from cofactor.methods.refusals import SCANNED
from cofactor.privacy.errors import PrivacyError
from cofactor.records import RankScan
from cofactor.select import RankScan as Found
from cofactor.select import boolean_ranks, select_rank
from cofactor.types import CofactorError

BITS = "All values are 0 or 1, and these are ranks of factors of numbers: --boolean scans those of Boolean ones."
"""What is said of a scan that may not be the one that was meant."""


def scan_ranks(config: Config, ranks: Sequence[int], *, seeds: int = 3) -> Found:
    """Scan ranks over the inputs of a configuration."""
    _, inputs = read(config, Place())
    inputs, _ = preparing.prepare(config, inputs, Place(), {})
    if inputs.known is not None:
        raise CofactorError("a rank scan needs the same features at every client; use --features intersection.")
    if config.kind == "ratings":
        return rated_ranks.scan(inputs.data, ranks, seeds=seeds, seed=config.seed)
    if config.kind == "boolean":
        return boolean_ranks.scan(inputs.data, ranks, seeds=seeds, seed=config.seed)
    found = select_rank(inputs.data, ranks, seeds=seeds, seed=config.seed)
    bits = all(not arrays.is_held(X) and are_bits(X) for X in inputs.data)  # of rows on disk nobody looks
    return replace(found, reason=f"{found.reason} {BITS}") if bits else found


def refuse_private(out: Path) -> None:
    """Refuse to add errors without noise to the folder of a private run."""
    folder = RunFolder(out)
    if folder.manifest_file.exists() and folder.manifest_record().privacy is not None:
        raise PrivacyError(SCANNED.format(run=out))


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
