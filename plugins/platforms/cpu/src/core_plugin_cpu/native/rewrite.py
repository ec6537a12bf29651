"""Torch operations that a program makes by native calls: what is computed by elements or by rows, or copied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from core_plugin_cpu.native.elementwise import gather, shift
from core_plugin_cpu.native.mapping import compute, copy, reduce

_ATEN = torch.ops.aten

Made = Tensor | None
Rule = Callable[[Tensor, Sequence[Any], Mapping[str, Any], bool], bool]
"""`(out, args, kwargs, rows)`: computes into `out`, or returns False."""


def rewritten(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], empty: Callable[[], Tensor], *, rows: bool
) -> Made:
    """Make `func` by native calls and return its result; None if there is none for it.

    Args:
        empty: Returns memory for the result, of its shape and dtype.
        rows: Whether the result's first dimension is that of the tokens.
    """
    if func is _ATEN.add.Tensor and _shifts(args, kwargs):
        return shift(args[0], args[1])
    if func in _LOOKUPS:
        return _looked_up(args[0], args[_LOOKUPS[func]])
    rule = _RULES.get(func)
    if rule is None:
        return None
    in_place = func._schema.is_mutable
    out: Tensor = args[0] if in_place else empty()
    fits = in_place or out.is_contiguous()
    return out if fits and out.dim() and rule(out, args, kwargs, rows) else None


def _shifts(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a whole number is added to positions."""
    x, y = args[0], args[1]
    return isinstance(y, int) and not kwargs and x.dtype == torch.int64 and x.dim() == 1 and x.is_contiguous()


def _looked_up(table: Tensor, places: Tensor) -> Made:
    """Return rows of a table; None where the table or the places are no plain ones."""
    plain = table.dim() == 2 and table.is_cpu and table.is_contiguous()
    fits = places.dtype is torch.int64 and places.dim() == 1 and places.is_cpu and places.is_contiguous()
    return gather(table, places) if plain and fits else None


def _one(operation: str) -> Rule:
    """An operation of one tensor, without options."""
    return lambda out, args, kwargs, rows: len(args) == 1 and not kwargs and compute(operation, out, args[0], rows=rows)


def _two(operation: str) -> Rule:
    """An operation of a tensor and another one, or a number."""

    def rule(out: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], rows: bool) -> bool:
        if len(args) != 2 or any(key != "alpha" or value != 1 for key, value in kwargs.items()):
            return False
        x, y = args
        # A tensor without dimensions counts like a number when dtypes are settled, not when it is rounded.
        apart = isinstance(y, Tensor) and y.dtype is not x.dtype and not (x.dim() and y.dim())
        fits = isinstance(y, Tensor) or type(y) in (int, float)
        if type(y) is float and operation in _SUMS:
            y = torch.tensor(
                y, dtype=x.dtype
            ).item()  # torch adds numbers in the dtype, and multiplies by them as they are
        return fits and not apart and compute(operation, out, x, y, rows=rows)

    return rule


_SUMS = ("add", "subtract", "subtract_from")


def _square(out: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], rows: bool) -> bool:
    return len(args) == 2 and args[1] == 2 and compute("square", out, args[0], rows=rows)


def _gelu(out: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], rows: bool) -> bool:
    form = kwargs.get("approximate", "none")
    return compute("gelu_tanh" if form == "tanh" else "gelu", out, args[0], rows=rows)


def _clamp(out: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], rows: bool) -> bool:
    low, high = ((*args, None, None)[index] if len(args) > index else kwargs.get(key) for index, key in _BOUNDS)
    bounds = [(name, one) for name, one in (("maximum", low), ("minimum", high)) if one is not None]
    if not bounds or any(type(one) not in (int, float) for _, one in bounds):
        return False
    sources = [args[0], out]
    return all(compute(name, out, x, one, rows=rows) for x, (name, one) in zip(sources, bounds))


_BOUNDS = ((1, "min"), (2, "max"))


def _softplus(out: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], rows: bool) -> bool:
    beta = args[1] if len(args) > 1 else kwargs.get("beta", 1.0)
    # Beyond torch's usual threshold, where it gives the number itself, float32 knows no difference; below it does.
    usual = (args[2] if len(args) > 2 else kwargs.get("threshold", 20.0)) >= _THRESHOLD
    return usual and type(beta) in (int, float) and bool(beta) and compute("softplus", out, args[0], beta, rows=rows)


_THRESHOLD = 20.0


def _reduced(operation: str) -> Rule:
    """A reduction of the last dimension."""

    def rule(out: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], rows: bool) -> bool:
        x, dims = args[0], args[1] if len(args) > 1 else kwargs.get("dim")
        dims = [dims] if isinstance(dims, int) else list(dims or ())
        if x.dim() < 1 + rows or [dim % x.dim() for dim in dims] != [x.dim() - 1] or not x.shape[-1]:
            return False
        return reduce(operation, out.squeeze(-1) if out.dim() == x.dim() else out, x, rows=rows)

    return rule


def _converted(out: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], rows: bool) -> bool:
    """Another dtype, or another place."""
    x = args[0]
    return copy(out, x, rows=rows) if x.dtype is out.dtype else compute("same", out, x, rows=rows)


def _moved(out: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], rows: bool) -> bool:
    """The same elements in another shape, one after another."""
    return copy(out.view(args[0].shape), args[0], rows=rows)


def _assigned(out: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], rows: bool) -> bool:
    return _converted(out, args[1:], kwargs, rows)


def _joined(out: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], rows: bool) -> bool:
    parts, dim = args[0], (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % out.dim()
    if (rows and dim == 0) or any(one.dtype is not out.dtype or one.dim() != out.dim() for one in parts):
        return False
    begins = accumulate((one.shape[dim] for one in parts), initial=0)
    places = [out.narrow(dim, begin, one.shape[dim]) for begin, one in zip(begins, parts)]
    return _all_copied(places, parts, rows)


def _stacked(out: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], rows: bool) -> bool:
    parts, dim = args[0], (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % out.dim()
    if (rows and dim == 0) or any(one.dtype is not out.dtype for one in parts):
        return False
    return _all_copied([out.select(dim, index) for index in range(len(parts))], parts, rows)


def _all_copied(places: Sequence[Tensor], parts: Sequence[Tensor], rows: bool) -> bool:
    return all(copy(place, part, rows=rows) for place, part in zip(places, parts))


def _repeated(out: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], rows: bool) -> bool:
    """One dimension again and again, as a whole."""
    x, times = args[0], args[1]
    dims = [dim for dim, count in enumerate(times) if count != 1]
    if len(times) != x.dim() or len(dims) != 1 or (rows and dims[0] == 0):
        return False
    dim, count = dims[0], times[dims[0]]
    whole = out.view(*x.shape[:dim], count, *x.shape[dim:])
    return _all_copied([whole.select(dim, index) for index in range(count)], [x] * count, rows)


def _interleaved(out: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any], rows: bool) -> bool:
    """Every element of a dimension several times."""
    x, count = args[0], args[1]
    dim = args[2] if len(args) > 2 else kwargs.get("dim")
    if dim is None or (rows and dim % x.dim() == 0):
        return False
    behind = dim % x.dim() + 1
    whole = out.view(*x.shape[:behind], count, *x.shape[behind:])
    return _all_copied([whole.select(behind, index) for index in range(count)], [x] * count, rows)


_LOOKUPS = {_ATEN.embedding.default: 1, _ATEN.index_select.default: 2}
"""Place of the rows' numbers among the arguments."""

_ONE = {
    "neg": "negate", "abs": "absolute", "relu": "relu", "square": "square", "sqrt": "root",
    "rsqrt": "reciprocal_root", "reciprocal": "reciprocal", "exp": "exponential", "tanh": "tanh",
    "sigmoid": "sigmoid", "silu": "silu",
}  # fmt: skip
_TWO = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide"}
_REDUCTIONS = {
    _ATEN.sum.dim_IntList: "sum", _ATEN.mean.dim: "mean", _ATEN.amax.default: "greatest", _ATEN.amin.default: "least",
}  # fmt: skip
_EXTREMES = {_ATEN.maximum.default: "maximum", _ATEN.minimum.default: "minimum"}

_RULES: Mapping[Any, Rule] = {
    **{getattr(_ATEN, name).default: _one(operation) for name, operation in _ONE.items()},
    **{getattr(_ATEN, f"{name}_").default: _one(operation) for name, operation in _ONE.items()},
    **{getattr(_ATEN, name).Tensor: _two(operation) for name, operation in _TWO.items()},
    **{getattr(_ATEN, f"{name}_").Tensor: _two(operation) for name, operation in _TWO.items()},
    **{func: _two(operation) for func, operation in _EXTREMES.items()},
    **{func: _reduced(operation) for func, operation in _REDUCTIONS.items()},
    _ATEN.softplus.default: _softplus,
    _ATEN.rsub.Scalar: _two("subtract_from"),
    _ATEN.pow.Tensor_Scalar: _square,
    _ATEN.gelu.default: _gelu,
    _ATEN.clamp.default: _clamp,
    _ATEN.to.dtype: _converted,
    _ATEN._to_copy.default: _converted,
    _ATEN.copy_.default: _assigned,
    _ATEN.clone.default: _moved,
    _ATEN.contiguous.default: _moved,
    _ATEN.reshape.default: _moved,
    _ATEN.flatten.using_ints: _moved,
    _ATEN.cat.default: _joined,
    _ATEN.stack.default: _stacked,
    _ATEN.repeat.default: _repeated,
    _ATEN.repeat_interleave.self_int: _interleaved,
}
