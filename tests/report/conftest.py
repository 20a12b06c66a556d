"""Run folders for the report: a real small run on the digits, written as the command line writes it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cofactor
from cofactor.combine.align import Lap
from cofactor.data import datasets, partition
from cofactor.local.refit import refit
from cofactor.methods import catalog
from cofactor.metrics import pooled_error, relative_error, rmsd
from cofactor.runs.config import Config
from cofactor.runs.fit import fit

RANK, ROUNDS, SEED = 10, 12, 0
NAMES = ["Basel", "Lyon", "Porto", "Turku", "Gdańsk"]


def dump(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def dump_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def fit_alone(Xs: list[np.ndarray], rank: int, rounds: int = 30, seed: int = SEED) -> np.ndarray:
    return cofactor.run(catalog.make("exact", rank, start="random"), Xs, rounds=rounds, seed=seed).factor


def cosines(H: np.ndarray, G: np.ndarray) -> np.ndarray:
    """Cosine of every row of H with its partner in G."""
    A, B = (M / np.linalg.norm(M, axis=1, keepdims=True) for M in (H, G))
    return np.sum(A * (Lap()(A, B) @ B), axis=1)


def evaluation(Xs: list[np.ndarray], run: cofactor.Run) -> dict[str, Any]:
    H, pooled = run.factor, fit_alone(Xs, RANK, 60)
    alone = [fit_alone([X], RANK) for X in Xs]
    clients = [
        {
            "client": name,
            "rows": len(X),
            "error": relative_error(X, W, H),
            "rmsd": rmsd(X, W, H),
            "local_error": relative_error(X, refit(X, G), G),
            "pooled_error": relative_error(X, refit(X, pooled), pooled),
        }
        for name, X, W, G in zip(NAMES, Xs, run.codes, alone)
    ]
    match = np.column_stack([cosines(H, G) for G in alone]).tolist()
    return {"error": pooled_error(Xs, run.codes, H), "clients": clients, "match": match}


def passports(run: cofactor.Run, match: list[list[float]], names: list[str]) -> list[dict[str, Any]]:
    H, again = run.factor, np.array(match)
    carried = np.sum([W.sum(axis=0) for W in run.codes], axis=0) * H.sum(axis=1)
    return [
        {
            "component": i,
            "clients_found": int(np.sum(again[i] >= 0.8)),
            "n_clients": len(NAMES),
            "stability": float(again[i].mean()),
            "drift": 0.0 if i else None,
            "share": float(carried[i] / carried.sum()),
            "top_features": [[names[j], float(H[i, j])] for j in np.argsort(-H[i])[:8]],
        }
        for i in range(len(H))
    ]


def rank_scan(Xs: list[np.ndarray], ranks: list[int]) -> dict[str, Any]:
    X = np.concatenate(Xs)
    train, held = X[::2], X[1::20]
    rows = []
    for k in ranks:
        factors = [fit_alone([train], k, 15, seed) for seed in (0, 1)]
        errors = [relative_error(held[:, 1::2], refit(held[:, ::2], H[:, ::2]), H[:, 1::2]) for H in factors]
        training = relative_error(train, refit(train, factors[0]), factors[0])
        other = fit_alone([Xs[0]], k, 15)
        stable = [float(cosines(factors[0], G).mean()) for G in (factors[1], other)]
        rows.append([float(np.mean(errors)), float(np.std(errors)), training, *stable])
    keys = ("heldout_mean", "heldout_std", "training_error", "seed_stability", "client_stability")
    columns = dict(zip(keys, map(list, zip(*rows))))
    best = ranks[int(np.argmin(columns["heldout_mean"]))]
    reason = "The held-out error is lowest here; more components fit the training cells alone."
    return {"ranks": ranks, **columns, "suggestion": best, "reason": reason}


def ledger(method: Any, m: int, dtype: np.dtype[Any]) -> list[dict[str, Any]]:
    lines = []
    for t in range(ROUNDS):
        for name in NAMES:
            for array, shape in method.schema(m, t).items():
                size = int(np.prod(shape)) * dtype.itemsize
                common = {"client": name, "round": t, "array": array, "shape": list(shape), "dtype": str(dtype)}
                lines.append(common | {"bytes": size, "clip": None, "noise": None, "cost": None})
    return lines


@pytest.fixture(scope="session")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete folder of ``exact`` on five unequal clients; tests must not change it."""
    path = tmp_path_factory.mktemp("report") / "run"
    path.mkdir()
    digits = datasets.digits()
    Xs = partition.split(digits.X, partition.dirichlet(digits.labels, 5, alpha=0.3, seed=1))
    method = catalog.make("exact", RANK)
    run = cofactor.run(method, Xs, rounds=ROUNDS, seed=SEED)
    names = [str(name) for name in digits.feature_names]
    inputs = [
        {
            "client": n,
            "path": f"{n}.npy",
            "sha256": hashlib.sha256(X.tobytes()).hexdigest(),
            "rows": len(X),
            "features": 64,
        }
        for n, X in zip(NAMES, Xs)
    ]
    config = {"method": "exact", "rank": RANK, "rounds": ROUNDS, "options": {"start": "summaries"}, "out": None}
    dump(
        path / "manifest.json",
        {"cofactor": cofactor.__version__, "created": "2025-01-31T12:00:00+00:00", "seed": SEED, "method": "exact"}
        | {"rank": RANK, "config": config, "versions": {"python": "3.11.2", "numpy": np.__version__}, "inputs": inputs},
    )
    dump_lines(path / "history.jsonl", [line._asdict() for line in run.history])
    np.savez(path / "factor.npz", factor=run.factor, feature_names=names, image_shape=[8, 8], image_order="C")
    scores = evaluation(Xs, run)
    dump(path / "evaluation.json", scores)
    dump(path / "passports.json", passports(run, scores["match"], names))
    dump(path / "rank.json", rank_scan(Xs, [2, 4, 6, 8, 10, 12, 14]))
    dump_lines(path / "ledger.jsonl", ledger(method, 64, run.factor.dtype))
    return path


@pytest.fixture(scope="session")
def private_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private run of three clients under secure summation, as the command line writes it."""
    path = tmp_path_factory.mktemp("private")
    X = datasets.digits().X
    files = []
    for name, rows in zip(NAMES, (slice(0, 500), slice(500, 1100), slice(1100, 1797))):
        files.append(str(path / f"{name}.npy"))
        np.save(files[-1], X[rows])
    config = Config(files, 5, method="dp-nmf", rounds=3, epsilon=2.0, delta=1e-5, secure=True, image="8x8")
    return fit(config, path / "run").path


@pytest.fixture
def folder(real_run: Path, tmp_path: Path) -> Path:
    """A copy of the real run that a test may change."""
    return Path(shutil.copytree(real_run, tmp_path / "run"))


@pytest.fixture
def edit() -> Callable[[Path, Callable[[Any], Any]], None]:
    """Change a JSON file: ``edit(path, function)``, where the function returns the new value or changes the old one."""

    def change(path: Path, function: Callable[[Any], Any]) -> None:
        value = json.loads(path.read_text(encoding="utf-8"))
        changed = function(value)
        dump(path, value if changed is None else changed)

    return change


@pytest.fixture
def large(folder: Path) -> Path:
    """50 components of 2000 named features, 200 clients, 300 rounds; numbers drawn, files in the real layout."""
    rng = np.random.default_rng(0)
    k, m, c, rounds = 50, 2000, 200, 300
    names = [f"client {i:03d}" for i in range(c)]
    np.savez(folder / "factor.npz", factor=rng.gamma(0.3, size=(k, m)), feature_names=[f"gene{i}" for i in range(m)])
    keys = ("error", "rmsd", "local_error", "pooled_error")
    clients = [{"client": n, "rows": 5 + i, **dict(zip(keys, rng.random(4)))} for i, n in enumerate(names)]
    dump(folder / "evaluation.json", {"error": 0.4, "clients": clients, "match": rng.random((k, c)).tolist()})
    line = {"drift": 1.0, "bytes_up": 10**6, "bytes_down": 10**6, "seconds": 0.1, "participants": c}
    dump_lines(folder / "history.jsonl", [{"round": t, "loss": 1e6 / (t + 1) ** 2, **line} for t in range(rounds)])
    release = {"array": "cross", "shape": [k, m], "dtype": "float32", "bytes": 4 * k * m}
    dump_lines(folder / "ledger.jsonl", [{"client": n, "round": t, **release} for t in range(rounds) for n in names])
    manifest = json.loads((folder / "manifest.json").read_text())
    dump(folder / "manifest.json", manifest | {"rank": k})
    (folder / "passports.json").unlink()
    return folder
