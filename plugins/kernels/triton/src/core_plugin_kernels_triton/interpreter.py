"""Triton's interpreter, made quicker: half of its time went into preparing the language again at every inner call."""

from __future__ import annotations

from types import FunctionType
from typing import Any


def quicken() -> None:
    """Have the interpreter prepare the language for a function that kernels call once, and for kernels at each launch.

    What it does for the first call of such a function stays, because the interpreter takes back only what a launch did.
    Does nothing where Triton's interpreter is not as this function knows it.
    """
    try:
        from triton.runtime import interpreter

        prepare, scope = interpreter._patch_lang, interpreter._LangPatchScope
        called = interpreter.InterpretedFunction.rewritten_fn  # by the functions as they were written
    except (ImportError, AttributeError):
        return

    def once(function: FunctionType) -> Any:
        # A launch comes with the function as it was rewritten, an inner call with the one that was written.
        return scope() if function in called else prepare(function)

    interpreter._patch_lang = once
