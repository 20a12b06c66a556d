"""Two run folders side by side."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from cofactor.jobs.folder import RunFolder


def public(folder: RunFolder) -> set[str]:
    """Names of all files but checkpoints, which are those of a process."""
    files = (path.relative_to(folder.path) for path in folder.path.rglob("*") if path.is_file())
    return {str(path) for path in files if not path.name.startswith("checkpoint")}


def near(a: Any, b: Any, path: str = "") -> None:
    """Assert that two values of JSON are the same, numbers to 1e-6; seconds and hashes do not count.

    Drift is of the last rounds: a run that was killed in them does not know it.
    """
    if isinstance(a, dict):
        assert a.keys() == b.keys(), path
        known = set(a) - {"seconds", "created", "hash", "previous", "engine", "scheduler", "ledger", "keys"}
        for key in known - ({"drift"} if None in (a.get("drift"), b.get("drift")) else set()):
            near(a[key], b[key], f"{path}/{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            near(x, y, f"{path}/{i}")
    elif isinstance(a, float) and isinstance(b, float):
        assert a == pytest.approx(b, rel=1e-6, abs=1e-6), path
    else:
        assert a == b, path


def same_run(a: RunFolder, b: RunFolder) -> None:
    """Assert that two folders hold the same: files, records, factor and codes."""
    assert public(a) == public(b)
    for name in sorted(public(a)):
        one, two = a.path / name, b.path / name
        if name.endswith(".json"):
            near(json.loads(one.read_text()), json.loads(two.read_text()), name)
        elif name == "history.jsonl":
            for x, y in zip(*(path.read_text().splitlines() for path in (one, two)), strict=True):
                near(json.loads(x), json.loads(y), name)
        elif name.endswith("codes.npy"):
            np.testing.assert_allclose(np.load(one), np.load(two), atol=1e-6)
    np.testing.assert_allclose(a.factor()[0], b.factor()[0], atol=1e-6)
    assert a.factor()[1] == b.factor()[1]
