"""Secure summation over processes: the inline result, private runs, and too few clients."""

from __future__ import annotations

import json
import sys

import numpy as np

from cofactor import Privacy, run
from cofactor.data import synthetic
from cofactor.engines.mpi import Mpi
from cofactor.engines.secure import Secure
from cofactor.methods import catalog
from cofactor.methods.build import Facts, build
from cofactor.plan import Plan
from cofactor.types import CofactorError

engine = Mpi()
team = engine.team
Xs = synthetic.blocks(5, [23, 31, 17, 12, 5], features=14, rank=3, seed=4).Xs
mine = [Xs[j] for j in np.array_split(np.arange(len(Xs)), team.count)[team.here]]

method = catalog.make("exact", 3, start="moments")
there = run(method, mine, rounds=8, engine=Secure(engine))
here = run(method, Xs, rounds=8, engine=Secure())

asked, plan = build("exact", 3, Plan(privacy=Privacy(1.0, 1e-3), secure=True), Facts(5))
private = run(asked, mine, plan, engine=engine)

try:
    run(method, mine[:1], rounds=1, engine=Secure(Mpi(comm=team.comm.Split(team.here))))
    few = "not refused"
except CofactorError as error:
    few = str(error)

factors = team.exchange("factors", private.factor)
if team.first:
    found = {
        "gap": float(np.abs(there.factor - here.factor).max()),
        "private": {
            "epsilon": private.epsilon,
            "alike": bool(all(np.array_equal(factors[0], other) for other in factors)),
        },
        "few": few,
    }
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)
