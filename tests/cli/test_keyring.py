"""``cofactor keys`` and runs that use them: who may collude and how keys came is said wherever masks are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.command import cofactor

from cofactor.engines.secure import EXCHANGED, SAME_CHANNEL

NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, rng = tmp_path_factory.mktemp("keyed"), np.random.default_rng(0)
    for name in NAMES:
        np.save(path / f"{name}.npy", rng.random((12, 6)))
    told = cofactor("keys", "make", *NAMES, cwd=path).stdout
    assert "never leaves this machine" in told
    assert "by another way than the server" in told
    return path


def fit(home: Path, out: str, *words: object) -> None:
    cofactor("fit", *(f"{name}.npy" for name in NAMES), "-k", 2, "--rounds", 2, "--out", out, "-q", *words, cwd=home)


def test_keys_are_shown_with_what_people_compare(home: Path) -> None:
    found = json.loads(cofactor("keys", "show", "--json", cwd=home).stdout)
    assert [(line["client"], line["private"]) for line in found] == [(name, True) for name in NAMES]
    assert all(line["fingerprint"].startswith("SHA256:") for line in found)
    assert found[0]["fingerprint"] in cofactor("keys", "show", "keys", cwd=home).stdout
    assert (
        "expected key files (NAME.pub), found none" in cofactor("keys", "show", "elsewhere", cwd=home, check=2).stderr
    )


@pytest.mark.parametrize(("out", "words"), [("signed", ("--keys", "keys")), ("plain", ())])
def test_a_run_says_how_its_keys_came(out: str, words: tuple[str, ...], home: Path) -> None:
    fit(home, out, "--secure", *words)
    expected = "Each of 3 clients masks with all others; at most 2 may collude. " + (
        EXCHANGED if words else SAME_CHANNEL
    )
    assert json.loads((home / out / "manifest.json").read_text())["masks"] == expected
    assert expected in (home / out / "report.html").read_text()
    assert expected in cofactor("ledger", "show", out, cwd=home).stdout
    assert cofactor("ledger", "verify", out, cwd=home).stdout.splitlines()[-1].startswith("ok")


def test_a_run_is_refused_before_it_begins(home: Path) -> None:
    files = [f"{name}.npy" for name in NAMES]
    told = cofactor("fit", *files, "-k", 2, "--keys", "keys", "--out", "none", cwd=home, check=2).stderr
    assert "keys: expected --secure to go with it" in told
    np.save(home / "d.npy", np.ones((4, 6)))
    words = ("-k", 2, "--secure", "--keys", "keys", "--out", "none")
    told = cofactor("fit", *files, "d.npy", *words, cwd=home, check=2).stderr
    assert "expected public keys of all clients, found none of d (found: a, b, c)" in told
    (home / "keys" / "a.key").chmod(0o644)
    told = cofactor("fit", *files, *words, cwd=home, check=2).stderr
    (home / "keys" / "a.key").chmod(0o600)
    assert "expected permissions 600 (its owner alone may read it), found 644" in told
    assert not (home / "none" / "manifest.json").exists()
