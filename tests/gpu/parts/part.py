"""A process that does some of a phase's items, and prints a line of JSON for each."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable

FAULTS = ("CUDA error", "HIP error", "CORE-E129", "AcceleratorError", "illegal memory access")
"""What says that the device's context is of no more use to a process."""

TRACE = 2500
"""Characters of a traceback that are told."""


def main(one: Callable[[str, str, bool], list[str]]) -> None:
    """Do the items of the command line: `PLATFORM SMALL ITEM ...`.

    After a fault of the device the process ends, and whoever started it goes on in another.

    Args:
        one: Does an item, for a platform and with tiny shapes or not; returns what is wrong.
    """
    platform, small, *items = sys.argv[1:]
    for item in items:
        began = time.perf_counter()
        try:
            wrong = one(item, platform, small == "1")
        except Exception as error:
            wrong = [f"{type(error).__name__}: {error}\n{traceback.format_exc()[-TRACE:]}"]
        line = {"item": item, "wrong": wrong, "seconds": round(time.perf_counter() - began, 2)}
        print("\n" + json.dumps(line), flush=True)
        if any(fault in text for text in wrong for fault in FAULTS):
            os._exit(3)
