"""What really crosses the network: all that the server receives is recorded, and hostile frames are sent along."""

import json

import numpy as np
import pytest
from tests.helpers.federation import Real, blocks, factor_of, listening

from cofactor import run
from cofactor.engines.flare_format import unpack
from cofactor.jobs.folder import RunFolder
from cofactor.methods import catalog
from cofactor.plan import Plan

pytest.importorskip("nvflare")
ROUNDS = 60
SECRET, VALUE = "patient-8471190263", -8471190263.5


def write(path, X, names):
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([",".join(names), *(",".join(map(repr, row)) for row in X.tolist())]))


def test_secrets_stay_and_hostile_frames_change_nothing(tmp_path):
    """Bob's data, path, a feature and an error are secret; dave's answers are garbage, and so are many orders."""
    data, names = blocks((40, 30, 50, 35), features=12, seed=3), [f"g{i}" for i in range(12)]
    data[1][5, 7] = 2.718281828459045
    real = Real(tmp_path, data)
    path = tmp_path / f"{SECRET}-folder" / "rows.csv"
    for name, X in zip(real.names, data, strict=True):
        write(path if name == "bob" else tmp_path / f"{name}.csv", X, names)
    heard, said = tmp_path / "heard", tmp_path / "said"
    try:
        server = {"COFACTOR_TEST_RECORD": str(heard), "COFACTOR_TEST_HOSTILE": f"server:{said}"}
        real.serve(listening(**server))
        for name in real.names:
            own = path if name == "bob" else tmp_path / f"{name}.csv"
            env = listening(COFACTOR_TEST_HOSTILE="client") if name == "dave" else None
            real.start(name, "join", f"federation/invites/{name}.cofactor", "--data", str(own), env=env)
        real.wait_for_clients()
        settings = {"rank": 3, "method": "exact", "rounds": ROUNDS, "tol": 0.0}
        bad = data[1].copy()
        bad[3, 4] = VALUE
        write(path, bad, [*names[:4], SECRET, *names[5:]])
        config = real.write("bad", **settings)
        text = real.command("fit", "--engine", "flare", "--config", config, "--out", "bad", expect=2)
        assert "client bob: its data cannot be used for this run; its own log says why" in text
        assert any("row 3, column 4" in f.read_text() for f in (tmp_path / "bob-home").glob("*/log.txt"))
        write(path, data[1], names)
        folder = real.fit("good", **settings, federation={"least": 3})
    finally:
        real.close()
    here = run(catalog.make("exact", 3), data[:3], Plan(ROUNDS))
    assert np.abs(factor_of(folder) - here.factor).max() <= 1e-6
    events = [f"{e['client']}: {e['what']}" for e in real.events("good")]
    assert events.count("dave: its reply was not what the method sends") == ROUNDS + 1  # rounds, and markers
    ledger = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    assert {line["client"] for line in ledger if "client" in line} == {"alice", "bob", "carol"}
    assert RunFolder.open(folder).verify().ok

    received = b"".join(file.read_bytes() for file in tmp_path.glob("heard.*"))
    assert b'"hashes"' in received  # what was sent is there, as it was sent
    assert b'"cross"' in received
    for word in (SECRET, "8471190263", "row 3, column 4", "Negative values", "rows.csv", str(tmp_path)):
        assert word.encode() not in received
    for number in (VALUE, data[1][5, 7]):
        assert np.float64(number).tobytes() not in received

    replies = said.read_bytes().split(b"\n--\n")[:-1]
    assert len(replies) >= 300
    assert {unpack(reply).get("no") for reply in replies if reply != b"none"} <= {"format", "order"}
