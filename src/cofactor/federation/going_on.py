"""Runs that go on from another one of the same server: without a client that is forgotten, or with one that is late."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from cofactor.engines.flare_refusals import Unfit
from cofactor.engines.history import event
from cofactor.engines.recalled import Recalled
from cofactor.federation.features import Common, Said, common
from cofactor.federation.terms import RunTerms
from cofactor.jobs import uploads
from cofactor.jobs.client_folder import as_json, write
from cofactor.jobs.folder import RunFolder
from cofactor.jobs.forget import CONTINUED, keep_before, way
from cofactor.jobs.job import Job
from cofactor.jobs.place import Place
from cofactor.types import CofactorError, DataError

SETTLED = "settled.json"
"""What clients have agreed on, at the server: who they are, and the type of their numbers."""
LATE = "has come late, and is in the result"


def agreed(terms: RunTerms, said: dict[int, Said], out: Path) -> tuple[Common, str]:
    """Return the features of a run and the type of its numbers; of a run that has begun, they stay as they are."""
    file, names = out / SETTLED, terms.names
    if not file.exists():
        found = common(said, terms.config.features, names)
        dtype = np.result_type(*(one.dtype for one in said.values())).str
        write(file, lambda stream: stream.write(as_json({"names": names, "dtype": dtype}).encode()))
        return found, dtype
    settled = json.loads(file.read_text(encoding="utf-8"))
    first = {j: one for j, one in said.items() if names[j] in settled["names"]}
    late = [names[j] for j in said if j not in first]
    before = common(first, terms.config.features, names)
    try:
        found = common(said, terms.config.features, names)
    except DataError as error:
        raise Unfit(late) if late else error from error
    if late and not _same(before, found):
        raise Unfit(late)
    return found, settled["dtype"]


def _same(before: Common, found: Common) -> bool:
    whole = before.features == found.features and before.union == found.union
    return whole and all(np.array_equal(index, found.columns[j]) for j, index in before.columns.items())


def begun(job: Job, terms: RunTerms, runs: Path) -> Job:
    """Return the job as it goes on from the run before it: with what was kept of it at the server."""
    if not terms.after:
        return job
    old = RunFolder.open(runs / terms.after)
    factor, names = old.factor()
    here = job.inputs.feature_names
    if factor.shape[1] != job.inputs.data[0].shape[1] or (here is not None and here != names):
        raise CofactorError("the features of these clients are others than those of the run: start a new one.")
    if way(job.config) == CONTINUED:
        return replace(job, start=factor)
    kept = uploads.load(old.path)
    messages = {j: kept[name] for j, name in enumerate(job.names) if name in kept}
    return replace(job, place=Place(Recalled(job.place.engine, job.method, messages)))


def ended(terms: RunTerms, out: Path) -> None:
    """Keep the records of the run before, and delete the rest of it: its factor, its uploads, its states."""
    old = out.parent / terms.after
    if not terms.after or not old.exists():
        return
    before = [line.client for line in RunFolder.open(old).manifest_record().inputs]
    gone = [event(name, way(terms.config)) for name in before if name not in terms.names]
    come = [event(name, LATE) for name in terms.names if name not in before]
    keep_before(old, out, [*gone, *come])
    shutil.rmtree(old)


def copy(old: Path, new: Path, skip: tuple[str, ...] = ()) -> None:
    """Copy what a run folder holds, but for files whose names begin so."""
    new.mkdir(parents=True, exist_ok=True)
    for path in old.iterdir():
        if path.name.startswith(skip):
            continue
        if path.is_dir():
            shutil.copytree(path, new / path.name, dirs_exist_ok=True)
        else:
            shutil.copy(path, new / path.name)
