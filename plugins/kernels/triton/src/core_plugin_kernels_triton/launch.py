"""How kernels are launched from torch.

A launch is a function from tensors and numbers to nothing: it writes to some of its arguments. On a device it is called
as it is. In the interpreter it is made a torch operation, so that whatever watches or records the operations of a step
on CPU tensors sees it: the fake device's queue and graphs, and the conformance kit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import torch

from core_plugin_kernels_triton.compat import INTERPRETED

F = TypeVar("F", bound=Callable[..., None])

_LIBRARY = torch.library.Library("core_triton", "FRAGMENT") if INTERPRETED.value else None


def launch(arguments: str) -> Callable[[F], F]:
    """Return a decorator of launching functions.

    Args:
        arguments: Their types, as torch's operation schemas name them; what is written to is marked:
            `Tensor x, Tensor(a!) out, Tensor? bias, float eps`.
    """

    def make(function: F) -> F:
        if _LIBRARY is None:
            return function
        # Parts may have launches of the same name.
        name = f"{function.__module__.partition('.')[2].replace('.', '_')}_{function.__name__}"
        _LIBRARY.define(f"{name}({arguments}) -> ()")
        _LIBRARY.impl(name, _quiet(function), "CompositeExplicitAutograd")
        operation: Any = getattr(torch.ops.core_triton, name).default
        return operation  # type: ignore[no-any-return]

    return make


def _quiet(function: Callable[..., None]) -> Callable[..., None]:
    """Return it without numpy's warnings: infinities and NaN are as welcome in the interpreter as on a device."""

    @wraps(function)
    def call(*arguments: Any) -> None:
        with np.errstate(all="ignore"):
            function(*arguments)

    return call
