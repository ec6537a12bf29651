"""How the OpenMP runtime waits, decided before it is loaded. Torch-free; runs in the parent."""

from __future__ import annotations

SPINS = "10000"
"""Looks of an idle thread for new work before it sleeps: some tens of microseconds.

Left to itself libgomp looks 300,000 times. On a machine of its own that gains nothing measurable; where anything else
wants the same cores, what waits takes the time of what computes (docs/decisions/0006-cpu-start-memory-threads.md).
"""


def environment(threads: int | None) -> dict[str, str]:
    """Return the variables of the processes that compute: all threads take part, and none spins for long."""
    return {"GOMP_SPINCOUNT": SPINS, "OMP_DYNAMIC": "false"}
