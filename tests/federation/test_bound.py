"""A process of FLARE ends with the one that keeps it, however that one ends."""

import subprocess
import sys
import time
from pathlib import Path

from cofactor.federation.start import BOUND

KEEPER = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-m", sys.argv[1], "ticking", "-m", "x"], stdin=subprocess.PIPE)
child.wait()
"""
TICKING = """
import sys, time
from pathlib import Path
if __name__ == "__main__":
    assert sys.argv[1:] == ["-m", "x"]
    while True:
        Path("tick").write_text(str(time.monotonic()))
        time.sleep(0.02)
"""


def test_a_process_of_flare_does_not_outlive_the_one_that_keeps_it(tmp_path, monkeypatch):
    """One that was left behind by a client that was killed evicted the client that was started in its place."""
    (tmp_path / "ticking.py").write_text(TICKING)
    monkeypatch.chdir(tmp_path)
    tick = Path("tick")
    with subprocess.Popen([sys.executable, "-c", KEEPER, BOUND]) as keeper:
        while not tick.exists():
            assert keeper.poll() is None
            time.sleep(0.02)
        keeper.kill()
    for _ in range(500):
        before = tick.read_text()
        time.sleep(0.1)
        if tick.read_text() == before:
            return
    raise AssertionError("it still runs")
