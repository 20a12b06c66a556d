"""A page to look at while a run goes: served to this machine only, read from the files of a run or of a client."""

from __future__ import annotations

import html
import http.server
import json
import math
import secrets
from importlib import resources
from pathlib import Path
from typing import Any

from cofactor.assurance import ledger
from cofactor.engines.history import EVENTS
from cofactor.federation import policy
from cofactor.federation.driver import BACK, NOTE, SERVER
from cofactor.federation.own_run import AGREED
from cofactor.files import lines_of
from cofactor.types import CofactorError

MOST = 200
"""Lines of a table, the last ones."""
WELL = ("answers again", "has come late", "has lost its state")
"""What is said of clients that are at work after it."""
HERE = ("localhost", "127.0.0.1", "[::1]")
"""What this machine calls itself."""


def contents(folder: Path) -> dict[str, Any]:
    """Return what the page shows: of a run folder of the coordinator, or of the home of a client."""
    if (folder / NOTE).exists():
        return _of_run(folder)
    if (folder / policy.FILE).exists():
        return _of_client(folder)
    raise CofactorError(f"{folder}: expected the run folder of a federation, or the home of a client; found neither.")


def _of_run(folder: Path) -> dict[str, Any]:
    terms = json.loads((folder / NOTE).read_text(encoding="utf-8"))["terms"]
    config, history, events = terms["config"], _lines(folder / "history.jsonl"), _lines(folder / EVENTS)
    done = (folder / "evaluation.json").exists()
    last = history[-1] if history else {}
    states = {name: ["at work" if history else "not begun", "ok"] for name in config["inputs"]}
    server = ""
    for event in events:
        who, what = event["client"], event["what"]
        if not who and what.startswith("begins after"):  # with all of them
            states = {name: ["at work", "ok"] for name in states}
        elif not who and what.startswith(SERVER):
            server = "" if what == BACK else what
        elif who in states:
            states[who] = ["at work", "ok"] if what.startswith(WELL) else [what, "bad"]
    private = f"epsilon {config['epsilon']} in all" if "epsilon" in config else "not private"
    secure = ", secure sums" if config.get("secure") else ""
    now = "done" if done else server if server else f"round {last['round'] + 1}" if last else "waits for its clients"
    return {
        "title": f"{config['method']} at rank {config['rank']}",
        "meta": f"{now}; {len(states)} clients, {private}{secure}",
        "cards": _cards(history, config) if history else [],
        "clients": [[name, ["done", "ok"] if done else state] for name, state in states.items()],
        "loss": [
            [n["round"], n["loss"]] for n in history if n["loss"] is not None and n.get("stage") == last.get("stage")
        ],
        "events": [[e["time"][11:19], e["client"] or "the run", e["what"]] for e in events[-MOST:]],
    }


def _cards(history: list[dict[str, Any]], config: dict[str, Any]) -> list[list[str]]:
    """Return numbers of a run that has begun: what they are, how much, and a word more."""
    up, down = (sum(line[name] for line in history) / 1e6 for name in ("bytes_up", "bytes_down"))
    seconds, last = sorted(line["seconds"] for line in history), history[-1]
    most = f"of at most {config['rounds']}" if config.get("rounds") else "until it settles"
    cards = [["Rounds", str(len(history)), most]]
    if last["loss"] is not None:
        cards.append(["Loss", f"{last['loss']:.4g}", f"{history[0]['loss']:.4g} at first"])
    cards.append(["Carried", f"{up + down:.2f} MB", f"{up:.2f} up, {down:.2f} down"])
    cards.append(["A round takes", f"{seconds[len(seconds) // 2]:.2f} s", f"{seconds[-1]:.2f} s at most"])
    if last.get("epsilon"):
        cards.append(["Epsilon spent", f"{last['epsilon']:.3g}", f"of {config['epsilon']}"])
    return cards


def _of_client(home: Path) -> dict[str, Any]:
    runs = sorted((path for path in home.glob("runs/*") if path.is_dir()), key=lambda path: path.stat().st_mtime)
    own = json.loads((home / "local" / "cofactor.json").read_text(encoding="utf-8"))
    begun = [run for run in runs if (run / AGREED).exists()]
    left = dict[int, dict[str, Any]]()
    for line in _lines(begun[-1] / ledger.FILE) if begun else []:
        left.setdefault(line["round"], {})[line["array"]] = (line["shape"], line["dtype"])
    waiting = [run.name for run in runs if (run / "asked.json").exists() and not policy.answer_of(home, run.name)]
    spent = math.fsum(policy.spent(home).values())
    count = "no run yet" if not runs else f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    return {
        "title": f"client {own.get('client', home.name)}",
        "meta": count + (f"; the private ones cost epsilon {spent:.3g} in all" if spent else ""),
        "runs": [[run.name, _state(home, run), str(_rounds(run))] for run in reversed(runs[-MOST:])],
        "agreed": _agreed(json.loads((begun[-1] / AGREED).read_text(encoding="utf-8"))) if begun else None,
        "sent": [[_when(t), _arrays(arrays)] for t, arrays in list(left.items())[-MOST:]],
        "asked": _asked(home, waiting[0]) if waiting else None,
        "rules": (home / policy.FILE).read_text(encoding="utf-8"),
    }


def _state(home: Path, run: Path) -> list[str]:
    """Return how a run stands at a client, and whether that is well."""
    if (run / "evaluation.json").exists():
        return ["done", "ok"]
    answer = policy.answer_of(home, run.name)
    if answer == "no":
        return ["denied", "bad"]
    if (run / "asked.json").exists() and not answer:
        return ["waits for you", "bad"]
    return ["under way, or interrupted" if _rounds(run) else "known", "ok"]


def _rounds(run: Path) -> int:
    return len(_lines(run / "history.jsonl"))


def _arrays(arrays: dict[str, Any]) -> str:
    return ", ".join(f"{name} {' x '.join(map(str, shape)) or '1'}" for name, (shape, _) in arrays.items())


def _when(t: int) -> str:
    return str(t) if t >= 0 else "before round 0"


def _agreed(plan: dict[str, Any]) -> str:
    """Say what the clients have agreed on before anything else was sent."""
    steps = f"; prepared by {plan['prepare']}" if plan["prepare"] else ""
    if steps and plan["features"] is not None:
        steps += f", which leaves {plan['features']}"
    how = {"union": "that any client has", "position": "by position"}.get(plan["how"], "that all clients have")
    return f"{plan['clients']} clients, {plan['common']} features {how}; this client has {plan['own']}{steps}."


def _asked(home: Path, run: str) -> dict[str, str]:
    config = json.loads((home / "runs" / run / "asked.json").read_text(encoding="utf-8"))["config"]
    more = f", epsilon {config['epsilon']}" if "epsilon" in config else ", not private"
    text = f"Method {config['method']}, rank {config['rank']}, {config.get('rounds') or 'its own number of'} rounds"
    steps = f", prepared by {config['prepare']}" if "prepare" in config else ""
    how = {"union": ", features that any has", "intersection": ", features that all have"}
    found = how.get(config.get("features"), "")
    return {"run": run, "text": text + more + (", secure sums" if config.get("secure") else "") + found + steps + "."}


def _lines(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a file that may be being written to."""
    found = []
    for line in lines_of(file):
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def page(nonce: str) -> bytes:
    """Return the page, with the look of the report."""
    text = resources.files("cofactor.federation").joinpath("watch.html").read_text(encoding="utf-8")
    style = resources.files("cofactor.report").joinpath("templates/style.css").read_text(encoding="utf-8")
    return text.replace("STYLE", style, 1).replace("NONCE", html.escape(nonce)).encode()


class Watched(http.server.ThreadingHTTPServer):
    """The server of a page; its address holds a secret, since others may work on this machine."""

    url = ""


def open_page(folder: Path, port: int = 0) -> Watched:
    """Return a server of the page on localhost; its address is ``url``, and nobody is told it but who asked for it."""
    contents(folder)
    nonce, root = secrets.token_urlsafe(16), f"/{secrets.token_urlsafe(16)}/"

    class Page(http.server.BaseHTTPRequestHandler):
        """Answers whoever knows the address: the page, its data, and (at a client) the click of a person."""

        def do_GET(self) -> None:
            asked = self._asked()
            if asked is None:
                self._send(403, b"", "text/plain")
            elif asked == "":
                self._send(200, page(nonce), "text/html; charset=utf-8")
            elif asked == "data":
                self._send(200, json.dumps(contents(folder)).encode(), "application/json")
            else:
                self._send(404, b"", "text/plain")

        def do_POST(self) -> None:
            good = self._asked() == "answer" and _same(self.headers.get("X-Cofactor"), nonce)
            size = int(self.headers.get("Content-Length") or 0) if good else 0
            if not 0 < size <= 1 << 12 or (folder / NOTE).exists():
                self._send(403, b"", "text/plain")
                return
            try:
                told = json.loads(self.rfile.read(size))
                policy.answer(folder, Path(str(told["run"])).name, told["yes"] is True)
                self._send(200, b"", "text/plain")
            except (ValueError, KeyError, TypeError):
                self._send(400, b"", "text/plain")

        def _asked(self) -> str | None:
            """Return what is asked for under the secret of the address, by this machine's own name; else None.

            A foreign name may have been led here.
            """
            port = self.connection.getsockname()[1]
            here = self.headers.get("Host") in [f"{name}:{port}" for name in HERE]
            return self.path[len(root) :] if here and _same(self.path[: len(root)], root) else None

        def _send(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Referrer-Policy", "no-referrer")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    found = Watched(("127.0.0.1", port), Page)
    found.url = f"http://127.0.0.1:{found.server_address[1]}{root}"
    return found


def _same(told: str | None, secret: str) -> bool:
    return secrets.compare_digest((told or "").encode(), secret.encode())
