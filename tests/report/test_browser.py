"""The report in a real browser, headless: nothing fetched, nothing broken, readable on a phone and in the dark."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cofactor.report import html

HOW = "the browser tests need Chromium and its driver: apt-get install chromium chromium-driver; pip install selenium"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CONTRASTS = """
const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
const rgba = color => {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
  const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255];
};
const over = (top, base) => [0, 1, 2].map(i => top[i] * top[3] + base[i] * (1 - top[3])).concat(1);
const light = c => {
  const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const back = element => {
  const layers = [];
  for (let e = element; e; e = e.parentElement) {
    layers.unshift(getComputedStyle(e).backgroundColor);
    if (getComputedStyle(e, "::before").content !== "none")
      layers.splice(1, 0, getComputedStyle(e, "::before").backgroundColor);
  }
  return layers.map(rgba).reduce((base, top) => over(top, base), [255, 255, 255, 1]);
};
const weak = [];
for (const element of document.querySelectorAll("body *")) {
  const text = [...element.childNodes].filter(n => n.nodeType === 3).map(n => n.data.trim()).join("");
  if (!text || !element.getClientRects().length || element.closest("svg, .skip")) continue;
  const ground = back(element), ink = over(rgba(getComputedStyle(element).color), ground);
  const [a, b] = [light(ink), light(ground)].sort((p, q) => q - p);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) weak.push([element.className || element.tagName, text.slice(0, 30), ratio]);
}
return weak;
"""
FAULTS = """
const faults = [], all = q => [...document.querySelectorAll(q)];
let level = 0;
for (const h of all("h1, h2, h3, h4")) {
  const now = +h.tagName[1];
  if (now > level + 1) faults.push("heading " + h.textContent);
  level = now;
}
for (const q of ["header", "nav[aria-label]", "main", "footer", "h1"])
  if (all(q).length !== 1) faults.push(q + " " + all(q).length);
const bare = ["img:not([alt])", "img[alt='']", "[role=img]:not([aria-label])", "[role=img][aria-label='']"];
for (const e of all([...bare, "th:not([scope])"].join())) faults.push(e.outerHTML.slice(0, 80));
for (const e of all("figure, section")) {
  const label = e.querySelector("[role=img], img, table, h2");
  if (!label) faults.push("no name: " + e.outerHTML.slice(0, 80));
}
const ids = all("[id]").map(e => e.id);
if (new Set(ids).size !== ids.length) faults.push("an id twice");
if (document.documentElement.lang !== "en" || !document.title) faults.push("no language or title");
for (const a of all("a[href^='#']")) if (!document.querySelector(a.hash)) faults.push("dead link " + a.hash);
return faults;
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.fail(f"expected chromium and chromedriver, found {chromium} and {driver}: {HOW}")
    try:
        from selenium import webdriver
    except ImportError:
        pytest.fail(f"expected selenium, found none: {HOW}")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    window = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield window
    window.quit()


@pytest.fixture(scope="module")
def report(real_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return html.render(real_run, tmp_path_factory.mktemp("page") / "report.html")


def show(browser: Any, page: Path, *, width: int = 1280, scheme: str = "light") -> None:
    """Open a page at a width and in a colour scheme, with everything unfolded."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    metrics = {"width": width, "height": 850, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get(page.as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")


def traffic(browser: Any, page: Path) -> tuple[set[str], list[str]]:
    """Open a page; return the addresses it asked for and the lines of the console."""
    browser.get("about:blank")
    browser.get_log("performance")
    browser.get_log("browser")
    show(browser, page)
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [e["params"] for e in events if e["method"] == "Network.requestWillBeSent"]
    asked = {s["request"]["url"] for s in sent if s["documentURL"] == page.as_uri()}
    asked |= set(browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)"))
    return {url for url in asked if not url.startswith("data:")}, [e["message"] for e in browser.get_log("browser")]


def test_no_console_message_and_no_request(browser: Any, report: Path) -> None:
    assert traffic(browser, report) == ({report.as_uri()}, [])


@pytest.fixture
def outside() -> Iterator[tuple[str, list[str]]]:
    """A server on this machine: its address, and the paths that were asked of it."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def test_the_page_forbids_requests_and_the_check_would_see_them(
    browser: Any, report: Path, tmp_path: Path, outside: tuple[str, list[str]]
) -> None:
    address, asked = outside
    guarded = report.read_text(encoding="utf-8").replace("<main", f"<img src='{address}/x.png' alt='outside'><main")
    page = tmp_path / "page.html"
    page.write_text(guarded, encoding="utf-8")
    assert "Content Security Policy" in " ".join(traffic(browser, page)[1])
    assert asked == []
    page.write_text(guarded.replace("Content-Security-Policy", "nothing"), encoding="utf-8")
    assert f"{address}/x.png" in traffic(browser, page)[0]
    assert asked == ["/x.png"]


@pytest.mark.parametrize("width", [390, 1280])
def test_every_section_is_visible(browser: Any, report: Path, width: int) -> None:
    show(browser, report, width=width)
    there = [section for section in html.SECTIONS if section.id not in ("markers", "consensus", "events", "apart")]
    for section in there:  # pictures have no markers, one start no consensus, one machine no events
        element = browser.find_element("id", section.id)
        assert element.is_displayed()
        assert element.size["height"] > 60
        assert element.find_element("tag name", "h2").text == section.title
    drawn = "return [...document.querySelectorAll('figure, img')].filter(e => e.getBoundingClientRect().height < 60)"
    assert browser.execute_script(f"{drawn}.length") == 0
    assert browser.execute_script("return [...document.images].every(i => i.complete && i.naturalWidth > 0)")


@pytest.mark.parametrize("width", [320, 390, 768])
def test_the_page_never_scrolls_sideways(browser: Any, report: Path, width: int) -> None:
    show(browser, report, width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(browser: Any, report: Path, scheme: str) -> None:
    show(browser, report, scheme=scheme)
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") == (scheme == "light")
    assert browser.execute_script(CONTRASTS) == []


def test_the_contrast_check_sees_weak_text(browser: Any, report: Path) -> None:
    show(browser, report)
    browser.execute_script("document.querySelector('.lead').style.color = '#aaa'")
    assert len(browser.execute_script(CONTRASTS)) == 1


def test_structure_for_screen_readers(browser: Any, report: Path) -> None:
    show(browser, report)
    assert browser.execute_script(FAULTS) == []


def test_large_and_hostile_pages(browser: Any, large: Path) -> None:
    evaluation = json.loads((large / "evaluation.json").read_text())
    for i, client in enumerate(evaluation["clients"]):
        client["client"] = "<script>document.title = 'taken'</script>" + "m" * 300 * (i % 2)
    (large / "evaluation.json").write_text(json.dumps(evaluation))
    browser.get_log("browser")
    for scheme, width in (("dark", 1280), ("light", 390)):
        show(browser, html.render(large), width=width, scheme=scheme)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert browser.execute_script(FAULTS) == []
    assert "taken" not in browser.title
    assert browser.get_log("browser") == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_of_a_private_run(browser: Any, private_run: Path, width: int, scheme: str) -> None:
    browser.get_log("browser")
    show(browser, html.render(private_run), width=width, scheme=scheme)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(FAULTS) == []
    assert browser.execute_script(CONTRASTS) == []
    assert browser.find_element("id", "privacy").text.count("Gaussian") >= 2
    assert browser.get_log("browser") == []
