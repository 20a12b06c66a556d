"""The live page: what it shows of a run and of a client, to whom, and the click of a person."""

import http.client
import json
import re
import shutil
import threading
import time
from contextlib import nullcontext
from urllib.parse import urlsplit

import pytest
from tests.helpers.client_jobs import terms_of

from cofactor.federation import driver, policy
from cofactor.federation.terms import RunTerms, settled
from cofactor.federation.watch import contents, open_page
from cofactor.types import CofactorError

BAD = "<img src=x onerror=alert(1)>"


@pytest.fixture
def run_folder(tmp_path):
    terms = RunTerms("r1", settled({"inputs": ["alice", "bob"], "rank": 3, "epsilon": 1.0, "delta": 1e-6}))
    (tmp_path / "federation.json").write_text(json.dumps({"home": "f", "terms": terms.plain()}))
    line = {"loss": 2.0, "bytes_up": 500_000, "bytes_down": 500_000, "epsilon": 0.25, "seconds": 0.5, "round": 0}
    lines = [line, {**line, "round": 1, "loss": 1.0}]
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines) + '{"round": 2, "lo')
    events = [["", "begins"], ["bob", "does not answer"], ["bob", BAD]]
    text = "".join(json.dumps({"time": "2026-01-01T10:11:12", "client": c, "what": w}) + "\n" for c, w in events)
    (tmp_path / "events.jsonl").write_text(text)
    return tmp_path


@pytest.fixture
def client_home(tmp_path):
    home = tmp_path / "alice-home"
    (home / "local").mkdir(parents=True)
    (home / policy.FILE).write_text("approval = true")
    (home / "local" / "cofactor.json").write_text(json.dumps({"client": "alice"}))
    run = home / "runs" / "r1"
    run.mkdir(parents=True)
    terms = RunTerms("r1", settled({"inputs": ["alice", "bob"], "rank": 3, "secure": True}))
    (run / "asked.json").write_text(json.dumps(terms.plain()))
    lines = [{"round": 0, "array": "gram", "shape": [3, 3], "dtype": "<f8"}]
    lines += [{"round": 0, "array": "loss", "shape": [], "dtype": "<f8"}]
    (run / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    agreed = {"clients": 2, "own": 30, "common": 24, "features": 8, "how": "intersection", "prepare": "hvg=8"}
    (run / "agreed.json").write_text(json.dumps(agreed))
    return home


def serve(folder):
    server = open_page(folder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def root_of(server):
    return urlsplit(server.url).path


def nonce_of(server):
    """Return what whoever sees the page sends with a click."""
    line = http.client.HTTPConnection(*server.server_address)
    line.request("GET", root_of(server))
    return re.search(rb'"([A-Za-z0-9_-]{22})"', line.getresponse().read()).group(1).decode()


def test_a_run_while_it_goes(run_folder):
    found = contents(run_folder)
    assert found["title"] == "dp-moments at rank 3"
    assert found["meta"] == "round 2; 2 clients, epsilon 1.0 in all"
    assert found["clients"] == [["alice", ["at work", "ok"]], ["bob", [BAD, "bad"]]]
    assert found["loss"] == [[0, 2.0], [1, 1.0]]
    assert found["cards"] == [
        ["Rounds", "2", "until it settles"],
        ["Loss", "1", "2 at first"],
        ["Carried", "2.00 MB", "1.00 up, 1.00 down"],
        ["A round takes", "0.50 s", "0.50 s at most"],
        ["Epsilon spent", "0.25", "of 1.0"],
    ]
    (run_folder / "evaluation.json").write_text("{}")
    assert contents(run_folder)["meta"].startswith("done; ")
    with pytest.raises(CofactorError, match="found neither"):
        contents(run_folder / "none")


def tell(folder, *events):
    lines = [{"time": "2026-01-01T10:11:13", "client": client, "what": what} for client, what in events]
    with open(folder / "events.jsonl", "a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def test_a_client_is_red_as_long_as_it_is_not_at_work(run_folder):
    def states():
        return [state for _, state in contents(run_folder)["clients"]]

    well = ["at work", "ok"]
    tell(run_folder, ("alice", "waits for a person to approve the run"))
    assert states()[0] == ["waits for a person to approve the run", "bad"]
    tell(run_folder, ("", "begins after 3.0 s"))
    assert states() == [well, well]
    tell(run_folder, ("bob", "has come late, and takes part from round 3 on"))
    assert states() == [well, well]
    for what in ("took longer than 5 s; the others go on", "answered too late; the answer was not used"):
        tell(run_folder, ("bob", what))
        assert states() == [well, [what, "bad"]]
    tell(run_folder, ("bob", "answers again"))
    assert states() == [well, well]


def test_an_outage_is_on_the_page_while_it_lasts(run_folder, monkeypatch):
    pytest.importorskip("nvflare")
    monkeypatch.setattr(driver, "POLL", 0.0)
    meta = []
    one = driver.Driver(None, terms_of(), run_folder, lambda kind, line: meta.append(contents(run_folder)["meta"]))
    answers = iter([OSError("gone"), OSError("gone"), object()])

    def connect():
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(one, "_connect", connect)
    assert one.surely(lambda: 5) == 5
    assert [text.split(";")[0] for text in meta] == ["the server does not answer (OSError)", "round 2"]
    assert [e[2] for e in contents(run_folder)["events"]][-2:] == ["the server does not answer (OSError)", driver.BACK]
    one._merge()  # what was written at once is there once
    assert [e[2] for e in contents(run_folder)["events"]].count(driver.BACK) == 1


def test_a_client_says_yes_by_a_click_and_only_from_its_own_page(client_home):
    found = contents(client_home)
    text = "Method exact, rank 3, its own number of rounds, not private, secure sums."
    assert found["asked"] == {"run": "r1", "text": text}
    plan = "2 clients, 24 features that all clients have; this client has 30; prepared by hvg=8, which leaves 8."
    assert found["agreed"] == plan
    assert found["sent"] == [["0", "gram 3 x 3, loss 1"]]
    assert found["runs"] == [["r1", ["waits for you", "bad"], "0"]]
    assert found["rules"] == "approval = true"
    server = serve(client_home)
    try:
        assert server.server_address[0] == "127.0.0.1"
        line = http.client.HTTPConnection(*server.server_address)
        body = json.dumps({"run": "r1", "yes": True})
        line.request("POST", f"{root_of(server)}answer", body, {"X-Cofactor": "guessed"})
        assert line.getresponse().status == 403
        assert policy.answer_of(client_home, "r1") == ""
        line = http.client.HTTPConnection(*server.server_address)
        line.request("GET", f"{root_of(server)}elsewhere")
        assert line.getresponse().status == 404
    finally:
        server.shutdown()


def test_whoever_else_works_on_this_machine_sees_nothing_and_approves_nothing(client_home):
    """Any user of a machine can connect to a port of localhost, saw the page there, and could say yes in the place of
    the person who is to approve."""
    server = serve(client_home)
    nonce, root = nonce_of(server), root_of(server)
    try:
        for path in ("/", "/data", "//", root[:-1], f"/{'x' * 22}/", f"/{'x' * 22}/data"):
            line = http.client.HTTPConnection(*server.server_address)
            line.request("GET", path)
            found = line.getresponse()
            assert (found.status, found.read()) == (403, b""), path
        for path in ("/answer", f"/{'x' * 22}/answer"):
            line = http.client.HTTPConnection(*server.server_address)
            line.request("POST", path, '{"run": "r1", "yes": true}', {"X-Cofactor": nonce})
            assert line.getresponse().status == 403, path
        assert policy.answer_of(client_home, "r1") == ""
    finally:
        server.shutdown()
    other = serve(client_home)
    assert root_of(other) != root
    other.shutdown()


def test_a_foreign_name_that_leads_here_is_told_nothing(client_home):
    """A page of elsewhere may let its own name point to this machine: the browser then says that name."""
    server = serve(client_home)
    port = server.server_address[1]
    try:
        for host, status in [
            (f"127.0.0.1:{port}", 200),
            (f"localhost:{port}", 200),
            (f"[::1]:{port}", 200),
            (f"evil.example:{port}", 403),
            ("127.0.0.1", 403),
            (f"127.0.0.1:{port + 1}", 403),
            (f"127.0.0.1.evil.example:{port}", 403),
            ("", 403),
        ]:
            for path in (root_of(server), f"{root_of(server)}data"):
                line = http.client.HTTPConnection(*server.server_address)
                line.request("GET", path, headers={"Host": host})
                found = line.getresponse()
                assert (found.status, bool(found.read())) == (status, status == 200), host
        line = http.client.HTTPConnection(*server.server_address)
        nonce = nonce_of(server)
        for host, status in [(f"evil.example:{port}", 403), (f"127.0.0.1:{port}", 200)]:
            line = http.client.HTTPConnection(*server.server_address)
            line.request(
                "POST", f"{root_of(server)}answer", '{"run": "r1", "yes": true}', {"X-Cofactor": nonce, "Host": host}
            )
            assert line.getresponse().status == status
            assert policy.answer_of(client_home, "r1") == ("yes" if status == 200 else "")
    finally:
        server.shutdown()


@pytest.fixture
def window(tmp_path):
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert chromium, "the browser tests need Chromium and its driver: apt-get install chromium chromium-driver"
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}"):
        options.add_argument(flag)
    window = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield window
    window.quit()


def test_in_a_browser(run_folder, client_home, window):
    pages = [serve(run_folder), serve(client_home)]
    try:
        with nullcontext(window) as seen:
            seen.get(pages[0].url)
            until = time.monotonic() + 60
            while "bob" not in (text := seen.find_element("tag name", "body").text):
                assert time.monotonic() < until
            assert BAD in text  # shown as it is, not read as markup
            assert "2.00 MB" in text
            assert "Epsilon spent" in text
            assert not seen.find_elements("css selector", "img")
            assert seen.find_element("id", "loss").get_attribute("d").startswith("M0 ")
            seen.get(pages[1].url)
            while "Method exact" not in seen.find_element("tag name", "body").text:
                assert time.monotonic() < until + 20
            seen.find_element("id", "yes").click()
            while policy.answer_of(client_home, "r1") != "yes":
                assert time.monotonic() < until + 40
            while "Asked for next" in seen.find_element("tag name", "body").text:  # nothing is asked any more
                assert time.monotonic() < until + 60
    finally:
        for page in pages:
            page.shutdown()
