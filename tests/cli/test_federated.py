"""`cofactor fit --engine flare`: how many clients must answer, from the file or from the command line."""

import pytest
from typer.testing import CliRunner

from cofactor.cli import federation
from cofactor.cli.app import app
from cofactor.federation import submitting
from cofactor.federation.invite import Federation
from cofactor.types import CofactorError

pytest.importorskip("cryptography")


@pytest.fixture
def home(tmp_path):
    Federation.init(tmp_path / "fed", ["alice", "bob", "carol"], host="localhost", port=20_000)
    return tmp_path / "fed"


@pytest.fixture
def asked(monkeypatch):
    """What was to be submitted."""
    found = []

    def fit(federation, config, patience, out, tell):
        found.append((config.inputs, patience.least))
        raise CofactorError("enough")

    monkeypatch.setattr(submitting, "fit", fit)
    return found


def test_so_many_clients_must_answer(tmp_path, home, asked):
    file = tmp_path / "run.toml"
    file.write_text("rank = 2\ninputs = ['alice', 'bob']\n[federation]\nleast = 2\n")
    words = ["fit", "--engine", "flare", "--home", str(home), "--quiet"]
    for more in (
        ["-k", "2"],
        ["-k", "2", "--min-clients", "2"],
        ["--config", str(file)],
        ["--config", str(file), "--min-clients", "1"],
    ):
        CliRunner().invoke(app, [*words, *more])
    three, two = ["alice", "bob", "carol"], ["alice", "bob"]
    assert asked == [(three, None), (three, 2), (two, 2), (two, 1)]


@pytest.mark.parametrize("least", [0, 3, -1])
def test_no_more_than_there_are_and_no_fewer_than_one(tmp_path, home, asked, least):
    file = tmp_path / "run.toml"
    file.write_text("rank = 2\ninputs = ['alice', 'bob']\n")
    with pytest.raises(CofactorError, match=rf"--min-clients: expected 1 to 2 \(the clients\), found {least}"):
        federation.fit({}, tmp_path / "run", file, home, least=least, quiet=True)
    assert asked == []


def test_only_in_a_federation(tmp_path):
    found = CliRunner().invoke(app, ["fit", "x.npy", "-k", "2", "--min-clients", "2", "--out", str(tmp_path / "run")])
    assert "--min-clients: expected with --engine flare" in str(found.exception)
