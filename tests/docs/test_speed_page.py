"""The page of speed is what its results say, of cases that exist."""

from __future__ import annotations

import subprocess
import sys

from tests.helpers.scripts import ROOT

SCRIPT = """
import sys
sys.path.insert(0, "benchmarks/speed")
import page
from cases import CASES
import importlib.util
spec = importlib.util.spec_from_file_location("speed", "benchmarks/speed/__main__.py")
speed = importlib.util.module_from_spec(spec)
spec.loader.exec_module(speed)
assert len({case.name for case in CASES}) == len(CASES)
assert set(speed.read()) <= {case.name for case in CASES}
assert page.PAGE.read_text() == page.text(CASES, speed.read()), "python benchmarks/speed --page"
"""


def test_the_page_is_made_of_the_results() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
