"""Clients of a federation with homes of their own, and the server's side of a run over them, all in this process."""

from __future__ import annotations

import json

import numpy as np
from tests.helpers.federation import CallWire

from cofactor.engines.flare_clients import Patience
from cofactor.engines.flare_format import pack, unpack
from cofactor.federation import policy, server_job
from cofactor.federation.client_job import ClientJob
from cofactor.federation.own_run import Own
from cofactor.federation.terms import RunTerms, settled

NAMES = ["alice", "bob", "carol", "dave"]


def home_of(folder, X, text=policy.TEXT, *, file="rows.npy", names=None):
    """Make a client's home as `cofactor join` leaves it."""
    (folder / "local").mkdir(parents=True, exist_ok=True)
    path = folder / file
    if names is None:
        np.save(path, X)
    else:
        path.write_text("\n".join([",".join(names), *(",".join(map(repr, row)) for row in X.tolist())]))
    (folder / policy.FILE).write_text(text)
    (folder / "local" / "cofactor.json").write_text(json.dumps({"data": str(path), "salt": "s" * 32}))
    return folder


def terms_of(run="r1", names=NAMES, **settings):
    return RunTerms(
        run, settled({"inputs": names, "rank": 3, "tol": 0.0, "rounds": 5, **settings}), Patience(silence=5)
    )


def said(job, op="hello", value=None, seq=1):
    return unpack(job.desk.handle(pack({"run": job.desk.run, "seq": seq, "op": op, "v": value})))


def federation(tmp_path, Xs, terms, texts=(), names=None, *, stop=lambda: False):
    """Run the server's side over clients in this process; return the run folder and every byte that it received."""
    heard, jobs = [], {}
    for j, (name, X) in enumerate(zip(terms.names, Xs, strict=True)):
        text = texts[j] if texts else policy.TEXT
        file = "rows.npy" if names is None else "rows.csv"
        home = home_of(tmp_path / name, X, text, file=file, names=names and names[j])
        jobs[name] = ClientJob(json.loads(json.dumps(terms.plain())), Own.read(home)).desk
    wire = CallWire(jobs, lambda client, frame, reply: heard.append(reply) or reply)
    out = tmp_path / "server" / terms.run
    try:
        return server_job.serve(terms, wire, out, stop=stop, started=0.0), heard
    except Exception as error:
        error.heard = heard
        raise
