"""Triton's interpreter, made quicker.

Half of its time went into preparing the language again at every inner call, and a scan combined element by element.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np


def quicken() -> None:
    """Have the interpreter prepare the language for a function that kernels call once, and for kernels at each launch.

    What it does for the first call of such a function stays, because the interpreter takes back only what a launch did.
    Scans combine all that lies beside each other at once.
    Does nothing where Triton's interpreter is not as this function knows it.
    """
    try:
        from triton.runtime import interpreter

        prepare, scope = interpreter._patch_lang, interpreter._LangPatchScope
        called = interpreter.InterpretedFunction.rewritten_fn  # by the functions as they were written
        scans = interpreter.ScanOps
        _ = scans.generic_scan
    except (ImportError, AttributeError):
        return

    def once(function: FunctionType) -> Any:
        # A launch comes with the function as it was rewritten, an inner call with the one that was written.
        return scope() if function in called else prepare(function)

    interpreter._patch_lang = once
    scans.generic_scan = _scanned


def _scanned(scan: Any, given: list[Any]) -> list[Any]:
    """Return the results of an associative scan of several blocks along `scan.axis`, as the interpreter's own does."""
    lines = [np.moveaxis(one.handle.data, scan.axis, 0) for one in given]
    found = [np.empty(line.shape, line.dtype) for line in lines]
    state: tuple[Any, ...] = ()
    for place in range(len(lines[0])):
        here = tuple(scan.to_tensor(line[place], one.dtype) for line, one in zip(lines, given, strict=True))
        state = scan.combine_fn.fn(*state, *here) if state else here
        for into, one in zip(found, state, strict=True):
            into[place] = one.handle.data
    moved = [np.ascontiguousarray(np.moveaxis(one, 0, scan.axis)) for one in found]
    return [scan.to_tensor(one, like.dtype) for one, like in zip(moved, given, strict=True)]
