"""The doctor's child process (`CommandHost.in_process`). Imports a plugin or runs a plugin file.

Standard input brings a `Job`, standard output takes one `Report`; what the plugin prints goes to standard error. The
manifest comes before anything that a manifest should not need, so that what it imports is seen, and paid, by itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from core.api import CommandHost

HEAVY = ("torch", "triton", "transformers", "numpy", "pydantic")


class Glance(NamedTuple):
    """Cost of importing the manifest: processor time, and which of `HEAVY` came with it."""

    milliseconds: float = 0.0
    heavy: tuple[str, ...] = ()


def main(host: CommandHost) -> int:
    """Do the job, and return the exit status."""
    job = json.loads(sys.stdin.buffer.readline())
    channel = os.dup(1)
    os.dup2(2, 1)
    sys.path[:] = job["path"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        glance = Glance() if job["file"] or not job["entry"] else look(job["entry"]["value"])
        # Only now: it brings pydantic.
        from core_plugin_author.doctor.examination import examine

        text = examine(host.plugins, job, glance, caught).model_dump_json()
    with os.fdopen(channel, "wb") as out:
        out.write(text.encode())
    return 0


def look(value: str) -> Glance:
    """Import the manifest's module alone, to see what it takes over what every manifest needs."""
    for module in ("core.api.descriptors", "core.api.hooks"):
        import_module(module)
    before = set(sys.modules)
    began = time.process_time()  # a busy machine does not make a plugin slow
    try:
        import_module(value.partition(":")[0].strip())
    except (Exception, SystemExit):
        return Glance()  # the examination meets the same failure and words it as a start would
    took = (time.process_time() - began) * 1000
    return Glance(took, tuple(name for name in HEAVY if name in set(sys.modules) - before))
