"""Threads that need the compiler at the same moment, and for the first time: in a process of their own."""

import subprocess
import sys

import pytest

TWO_THREADS = """
import sys
import time
from importlib import import_module
from threading import Thread

from cofactor.local.kernels import cpu, dense_products, sparse_products

failed = []
def read(name, after):
    while after not in sys.modules:
        time.sleep(1e-4)
    try:
        import_module(name)
    except BaseException as error:
        failed.append(f"{name}: {error}")

others = [Thread(target=read, args=("cofactor.local.kernels.MODULE", "numba")) for _ in range(2)]
[thread.start() for thread in others]
read("numba", "sys")
[thread.join() for thread in others]
sys.exit("; ".join(failed) or 0)
"""


@pytest.mark.parametrize("module", ["lines", "lanes", "grams", "thin", "scattered", "coupled", "turning", "waiting"])
def test_a_kernel_is_read_while_another_thread_has_read_half_of_the_compiler(module: str) -> None:
    program = [sys.executable, "-c", TWO_THREADS.replace("MODULE", module)]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=60)  # or for ever
    assert done.returncode == 0, done.stderr
