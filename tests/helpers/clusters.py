"""Two workers of dask, each a process of one thread, on this machine alone."""

from __future__ import annotations

import distributed


def two_workers() -> distributed.LocalCluster:
    return distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=":0",
        memory_limit=0,
        silence_logs="CRITICAL",
    )
