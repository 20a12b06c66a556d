"""Runs over the clients of a federation: a new one, one that was interrupted, one that is to forget a client."""

from __future__ import annotations

import json
import secrets
import shutil
from dataclasses import replace
from pathlib import Path

from cofactor.engines.flare_clients import Patience
from cofactor.federation.driver import NOTE, Driver, Tell
from cofactor.federation.invite import Federation, reach
from cofactor.federation.start import check_expiry, needs_flare
from cofactor.federation.terms import RunTerms
from cofactor.files import resuming
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.forget import anew, check_client, check_others, complete, swap, way
from cofactor.types import CofactorError


def fit(federation: Federation, config: Config, patience: Patience, out: Path, tell: Tell) -> RunFolder:
    """Run over the clients of a federation, through every interruption that can be survived."""
    needs_flare()
    if (out / "manifest.json").exists() or (out / NOTE).exists():
        raise CofactorError(f"{out}: already holds a run; choose another --out, or {resuming(out)}.")
    terms = RunTerms(secrets.token_hex(12), config, patience)
    _reach(federation)
    out.mkdir(parents=True, exist_ok=True)
    return Driver(federation, terms, out, tell).run()


def resume(out: Path, tell: Tell) -> RunFolder:
    """Go on with a run that was interrupted; one that has ended takes in clients that have come since, if it can."""
    known = _opened(out, tell)
    if not (out / "evaluation.json").exists():
        return known.run()
    late = known.surely(known.late)
    known.close()
    if not late:
        return RunFolder.open(out)
    way(known.terms.config)
    return _again(known, replace(known.terms.joined_by(late), run=secrets.token_hex(12), after=known.terms.run))


def forget(out: Path, client: str, tell: Tell) -> RunFolder:
    """Take a client out of a run that has ended, as far as its method allows it; only the others are asked."""
    ended, known = complete(out), _opened(out, tell)
    RunFolder.open(out).evaluation()
    terms = known.terms
    if ended and client in terms.config.forgotten:
        known.close()
        return RunFolder.open(out)
    way(terms.config)
    check_client(terms.names, client)
    others = terms.without(secrets.token_hex(12), [client])
    config = replace(others.config, forgotten=[*terms.config.forgotten, client])
    known.asked = [name for name in known.asked if name != client]
    return _again(known, replace(others, config=config, after=terms.run))


def _opened(out: Path, tell: Tell) -> Driver:
    needs_flare()
    complete(out)  # of clients that came late, too
    note = json.loads((out / NOTE).read_text(encoding="utf-8"))
    federation, terms = Federation.read(Path(note["home"])), RunTerms.read(note["terms"])
    _reach(federation)
    return Driver(federation, terms, out, tell, asked=note.get("asked"), jobs=note.get("jobs"))


def _reach(federation: Federation) -> None:
    """Say at once if the server cannot be reached, or would not let the coordinator in."""
    check_expiry(
        federation.home / "lead" / "startup" / "client.crt", "Make a new federation in another folder: --home."
    )
    reach(federation.host, federation.port)


def _again(known: Driver, terms: RunTerms) -> RunFolder:
    """Run what goes on from a run, put it in its place, and delete what the server has stored of the jobs before."""
    out = known.out.resolve()
    check_others(out)
    made = anew(out)
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    driver = Driver(known.federation, terms, made, known.tell, asked=known.asked, old=known.jobs)
    driver.run()
    swap(out)
    return RunFolder.open(known.out)
