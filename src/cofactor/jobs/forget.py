"""Forget a client: make a run what it would have been without it, from what is there without asking it again."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cofactor import files
from cofactor.assurance import ledger
from cofactor.engines.contract import Callback
from cofactor.engines.history import EVENTS, event
from cofactor.engines.recalled import Recalled
from cofactor.jobs import uploads
from cofactor.jobs.client_folder import as_json
from cofactor.jobs.config import Config
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.hashing import check_data, hashes
from cofactor.jobs.job import Job, carry, describe, prepare
from cofactor.jobs.place import Place
from cofactor.jobs.reading import file_names
from cofactor.methods import catalog
from cofactor.types import CofactorError, few

BEFORE = "forgotten"
"""Folder in a run folder: manifest and ledger of what the run was before, which stay true.

They name the client that was forgotten, and must: whoever has to show that it was, and what had left before, has
nothing else. The chains of the ledger begin at the whole manifest. What was computed from its rows (factor, uploads,
codes, losses of the rounds) is not kept.
"""
OF_A_RUN = re.compile(
    r"(manifest|evaluation|passports|privacy|arrivals|federation|settled|rank)\.json|(history|ledger|charges|events)\.jsonl"
    r"|(factor|preparation|uploads|checkpoint.*)\.npz|(factor|markers)\.tsv|run\.toml|report\.html|rank\.png|clients"
    rf"|{BEFORE}|.*\.(part|lock|seal)"
)
"""Names of what this package writes into a run folder; all of it is made anew."""
MERGED = "was forgotten: the uploads of the others were merged anew, and its own was deleted"
CONTINUED = "was forgotten: rounds went on over the statistics of the others"
WORDS = "a client of it cannot be taken out again. Only a new run without it forgets"


def way(config: Config) -> str:
    """Return how a run can forget a client (one of the two texts), or refuse in words."""
    method = catalog.make(config.method, 1) if not config.privacy and config.kind == "real" else None
    if config.privacy is not None:
        raise CofactorError(f"this run is private: what was released stays released, under its budget, and {WORDS}.")
    if config.secure:
        raise CofactorError(
            f"this run has added up under masks: nothing of single clients was kept, sums with and without a client "
            f"would tell of it alone, and {WORDS}."
        )
    asking = [step.word for step in config.preparation.steps if step.asks]
    if asking:
        raise CofactorError(f"prepare: {', '.join(asking)} has learned from all clients, and {WORDS}.")
    if method is not None and uploads.keeps(method):
        return MERGED
    if config.method == "exact":
        return CONTINUED
    raise CofactorError(f"method {config.method!r} mixes what clients send into later rounds, and {WORDS}.")


def as_run(folder: RunFolder) -> Config:
    """Return the configuration of the rounds that a folder holds: ``exact`` that went on has begun at a factor."""
    config = folder.config()
    return _going_on(config) if (folder.path / BEFORE).exists() and way(config) == CONTINUED else config


def _going_on(config: Config) -> Config:
    """Return the configuration of rounds that begin at the factor that there is, without uploads."""
    return replace(config, options={**config.options, **catalog.find(config.method).started_options})


def began(folder: RunFolder) -> Config:
    """Return the configuration with the noise and the masks that a run began with, whatever became of run.toml since.

    What is without them would go on in the open, and the charges of what was released would be deleted.
    """
    told = folder.manifest()["config"]
    return replace(folder.config(), **{name: told.get(name) for name in ("epsilon", "delta", "secure")})


def without(config: Config, names: Sequence[str], client: str) -> Config:
    """Return the configuration of the same run over the other clients."""
    check_client(names, client)
    told = replace(config, forgotten=[*config.forgotten, client])
    if len(config.inputs) == 1:
        return told
    paths = [path for path, name in zip(config.inputs, file_names(config.inputs), strict=True) if name != client]
    return replace(told, inputs=paths)


def forget(out: Path, client: str, *, callbacks: Sequence[Callback] = ()) -> RunFolder:
    """Make a finished run over files what it would have been without a client; its records say so.

    Uploads are merged anew without the client's (``oneshot`` and its like): the result is that of a run in which it
    never was. ``exact`` goes on from the factor that there is, with the sums of the others, to where a run without the
    client ends.
    """
    folder = RunFolder(out)
    with folder.held():
        ended, names = complete(out), [line.client for line in RunFolder.open(out).inputs()]
        if ended and client in folder.config().forgotten:
            return folder
        check_others(out)
        folder.evaluation()  # says what to do where a run has not ended
        config, how = folder.config(), way(began(folder))
        others = without(config, names, client)
        job = _job(others, how, folder)
        made = RunFolder(anew(out))
        shutil.rmtree(made.path, ignore_errors=True)
        found = hashes(others, job.inputs, Place())
        check_data(folder, found)
        carry(job, RunFolder.create(made.path, others, describe(job, found)), callbacks)
        keep_before(folder.path, made.path, [event(client, how)])
        swap(out)
    return folder


def _job(config: Config, how: str, folder: RunFolder) -> Job:
    """Return the job over the others: with their kept uploads, or from the factor that there is."""
    factor, names = folder.factor()
    if how == CONTINUED:
        job = replace(prepare(_going_on(config), Place(), folder.preparation()), config=config, start=factor)
    else:
        job = prepare(config, Place(), folder.preparation())
        kept = uploads.load(folder.path)
        messages = {j: kept[name] for j, name in enumerate(job.names)}
        job = replace(job, place=Place(Recalled(job.place.engine, job.method, messages)))
    if job.inputs.feature_names is not None and job.inputs.feature_names != names:
        raise CofactorError(f"the others have other features without this client, and {WORDS}.")
    return job


def check_client(names: Sequence[str], client: str) -> None:
    """Refuse to forget somebody who is not there, or all but one."""
    if client not in names:
        raise CofactorError(f"client: expected one of {', '.join(names[:8])}; found {client!r}.")
    if len(names) < 3:
        raise CofactorError(f"expected at least two clients besides {client!r}, found {len(names) - 1}: start anew.")


def check_others(out: Path) -> None:
    """Refuse to make a folder anew that holds files of somebody else: they would be deleted with it."""
    others = sorted(path.name for path in out.iterdir() if not OF_A_RUN.fullmatch(path.name))
    if others:
        raise CofactorError(
            f"{out}: expected only what the run has written, found {few(list(map(repr, others)), 3)}; all files of "
            "this folder are deleted, and made anew. Move yours elsewhere, or delete what tells of the client."
        )


def keep_before(old: Path, new: Path, happened: Sequence[dict[str, Any]]) -> None:
    """Keep what was agreed and what had left before, and nothing that was computed; add lines of what happened."""
    if (old / BEFORE).exists():
        shutil.copytree(old / BEFORE, new / BEFORE)
    place = new / BEFORE / str(1 + len(list((new / BEFORE).glob("*"))))
    place.mkdir(parents=True)
    for name in ("manifest.json", ledger.FILE):
        shutil.copy(old / name, place / name)
    events = new / EVENTS
    told = [file.read_text(encoding="utf-8") for file in (old / EVENTS, events) if file.exists()]
    lines = dict.fromkeys([*"".join(told).splitlines(), *(as_json(line).strip() for line in happened)])
    files.by_time(events, lines)


def anew(out: Path) -> Path:
    """Return where the folder is made that is to take the place of a run's."""
    return out.resolve().with_name(f"{out.resolve().name}.again")


def swap(out: Path) -> None:
    """Put the folder that was made anew in the place of the old one, which is deleted."""
    os.rename(out.resolve(), _old(out))
    files.reached("the old folder: out of the way")
    complete(out)


def complete(out: Path) -> bool:
    """End a swap that was begun, perhaps by a process that was killed in it; say whether there was one.

    What is left of the old folder holds codes and uploads of the client that was forgotten.
    """
    old = _old(out)
    if not old.exists():
        return False
    if not out.exists():
        os.rename(anew(out), out.resolve())
        files.reached("the new folder: in its place")
    shutil.rmtree(old)
    return True


def _old(out: Path) -> Path:
    return anew(out).with_name(f"{anew(out).name}.old")
