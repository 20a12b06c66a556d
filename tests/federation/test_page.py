"""The page about federations: every command is run as it is printed, but for the host, the port and the data."""

import re
import shlex

import numpy as np
import pytest
from tests.helpers.federation import Real, blocks, wait_for
from tests.helpers.scripts import ROOT

pytest.importorskip("nvflare")
PAGE = (ROOT / "docs" / "how-to" / "federation.md").read_text()


def test_the_commands_of_the_page(tmp_path):
    real = Real(tmp_path, [])
    commands = [shlex.split(line[2:]) for line in PAGE.splitlines() if line.startswith("$ ")]
    words = [command[1:] for command in commands if command[0] == "cofactor"]
    assert [w[0] for w in words] == ["federation", "serve", "join", "fit"]
    assert {tuple(c) for c in commands if c[0] != "cofactor"} == {("pip", "install", "cofactor[cli,flare]")}
    init, serve, join, fit = words
    try:
        real.command(*(w.replace("fed.example.org", "localhost") for w in init), "--port", str(real.port))
        real.start("server", *serve)
        for name, X in zip(("alice", "bob", "carol"), blocks(), strict=False):
            np.save(tmp_path / f"{name}.npy", X)
            (tmp_path / "federation" / "invites" / f"{name}.cofactor").rename(tmp_path / f"{name}.cofactor")
        for _ in range(3):
            wait_for(lambda: "clients join on port" in (tmp_path / "server.log").read_text(), "the server")
        for name in ("alice", "bob", "carol"):
            real.names.append(name)
            told = [w.replace("alice", name).replace("mine.h5ad", f"{name}.npy") for w in join]
            real.start(name, *told)
        real.wait_for_clients()
        toml = re.search(r"writes `run.toml`:\n\n```text\n(.*?)```", PAGE, re.S)
        (tmp_path / "run.toml").write_text(toml[1])
        said = real.command(*fit)
        assert "round 1:" in said
        assert "round 0:" not in said  # rounds are counted from 1, as on one machine and in the report
        assert (tmp_path / "run" / "report.html").exists()
        assert len(list((tmp_path / "alice-home" / "runs").glob("*/clients/alice/codes.npy"))) == 1
    finally:
        real.close()
