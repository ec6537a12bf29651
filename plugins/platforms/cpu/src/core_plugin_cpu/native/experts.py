"""Mixtures of experts by native kernels (`csrc/cpu/experts/experts.h`): routing, and products with experts' weights.

Rows *by expert*: the pairs of a token and one of its experts, ordered by expert, then by token, then by place. An id
that is no expert adds nothing; its row comes last and is zeros.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from core_plugin_cpu.native.checks import code, shown, unfit
from core_plugin_cpu.native.entry import PREFIX, Entry
from core_plugin_cpu.native.library import library
from core_plugin_cpu.native.packed import Format, packed_bytes

if TYPE_CHECKING:
    from torch import Tensor

    from core.api.experts import Routing

MOST_EXPERTS = 2048
"""`CORE_MOST_EXPERTS`: that can be chosen among."""

_SCORES = {"softmax": 0, "sigmoid": 1, "sqrt_softplus": 2}
_GROUP_BY = {"max": 0, "top2": 1}

_SIZES = "tokens top_k experts n k expert_bytes bias_stride x_stride y_stride x_dtype y_dtype format threads"

ROUTE = Entry(
    "route",
    pointers="logits correction weights ids",
    sizes="tokens experts top_k stride score chosen_only groups top_groups group_by renormalize threads",
    numbers="eps factor cap",
    slots={"tokens": "tokens"},
)
ADD_IDENTITIES = Entry(
    "add_identities",
    pointers="out x weights ids y",
    sizes="tokens top_k experts size out_stride x_stride dtype threads",
    slots={"tokens": "tokens"},
)
EXPERTS_IN = Entry("experts_in", pointers="x w ids bias y workspace", sizes=_SIZES, slots={"tokens": "tokens"})
EXPERTS_OUT = Entry(
    "experts_out", pointers="x w weights ids bias y workspace", sizes=_SIZES, slots={"tokens": "tokens"}
)


@dataclass(frozen=True, slots=True)
class PackedExperts:
    """Weights `(n, k)` of several experts as the kernels read them.

    Attributes:
        data: `(experts, bytes)` uint8: each row is a packed weight, whose bytes follow each other. Rows may lie apart.
        asked: As in `PackedWeight`.
    """

    format: Format
    n: int
    k: int
    data: Tensor
    asked: int = 0

    @property
    def code(self) -> int:
        """The field `format` of the kernels' arguments."""
        return self.format | self.asked


def route(logits: Tensor, correction: Tensor | None, routing: Routing) -> tuple[Tensor, Tensor]:
    """Choose experts: `logits (T, E)` -> weights `(T, k)` float32, ids `(T, k)` int32; as `core.ops.experts.route`.

    Raises:
        ValueError: There are fewer experts than are to be chosen, or more than `MOST_EXPERTS`; they are no groups of
            equal sizes; or the biases are not theirs.
    """
    if logits.dim() != 2 or not logits.is_cpu or not logits.is_floating_point():
        raise ValueError(f"route: logits (tokens, experts) of floats on the CPU expected, got {shown(logits)}")
    tokens, experts = logits.shape
    _check_routing(routing, experts)
    logits = _floats(logits)
    if correction is not None:
        if correction.shape != (experts,) or not correction.is_cpu:
            raise unfit("route", logits=logits, correction=correction)
        correction = _floats(correction)
    weights = torch.empty(tokens, routing.top_k, dtype=torch.float32)
    ids = torch.empty(tokens, routing.top_k, dtype=torch.int32)
    pointers = (logits.data_ptr(), _address(correction), weights.data_ptr(), ids.data_ptr())
    grouped = (routing.groups, routing.top_groups, _GROUP_BY[routing.group_by])
    kinds = (_SCORES[routing.score], int(routing.chosen_only), *grouped, int(routing.renormalize))
    stride, threads = logits.stride(0), torch.get_num_threads()
    ROUTE(*pointers, tokens, experts, routing.top_k, stride, *kinds, threads, routing.eps, routing.factor, routing.cap)
    return weights, ids


def add_identities(out: Tensor, x: Tensor, weights: Tensor, ids: Tensor, experts: int) -> Tensor:
    """Return `out (T, D)` and `x (T, D)` times the weights of ids from `experts` on, `weights, ids (T, k)`.

    Raises:
        ValueError: A dtype or a shape does not fit.
    """
    if out.dim() != 2 or out.shape != x.shape or out.dtype is not x.dtype or not (out.is_cpu and x.is_cpu):
        raise unfit("add_identities", out=out, x=x)
    dtype, due = code(x, "add_identities"), (len(x), ids.shape[-1])
    fits = weights.shape == ids.shape == due and weights.dtype is torch.float32 and ids.dtype is torch.int32
    if not fits or not _plain(weights) or not _plain(ids):
        raise unfit(
            "add_identities: contiguous weights (float32) and ids (int32) of each row", weights=weights, ids=ids
        )
    out, x = (one if one.stride(1) == 1 else one.contiguous() for one in (out, x))
    found = torch.empty(x.shape, dtype=x.dtype)
    sizes = (*due, experts, x.shape[1], out.stride(0), x.stride(0), dtype, torch.get_num_threads())
    ADD_IDENTITIES(*(one.data_ptr() for one in (out, x, weights, ids, found)), *sizes)
    return found


def experts_in(x: Tensor, ids: Tensor, weight: PackedExperts, bias: Tensor | None, y: Tensor) -> None:
    """Multiply each token's row with the weights of all of its experts.

    Args:
        x: `(T, k)` float32 or bfloat16; rows may lie apart.
        ids: `(T, experts of a token)` int32.
        bias: `(experts, n)` float32; rows may lie apart.
        y: Gets the results by expert, `(T * experts of a token, n)`; rows may lie apart.

    Raises:
        ValueError: A dtype or a shape does not fit.
    """
    _check("experts_in", weight, bias, ids)
    rows = ids.shape[0] * ids.shape[1]
    if x.shape != (ids.shape[0], weight.k) or y.shape != (rows, weight.n):
        raise unfit(f"experts_in of weights ({weight.n}, {weight.k})", x=x, ids=ids, y=y)
    _multiply(EXPERTS_IN, x, (), ids, weight, bias, y)


def experts_out(x: Tensor, weights: Tensor, ids: Tensor, weight: PackedExperts, bias: Tensor | None, y: Tensor) -> None:
    """Multiply each row with the weights of its expert, and sum up what belongs to a token, weighed, in float32.

    Args:
        x: Rows by expert, `(T * experts of a token, k)` float32 or bfloat16; they may lie apart.
        weights: `(T, experts of a token)` float32.
        ids: `(T, experts of a token)` int32.
        bias: `(experts, n)` float32; rows may lie apart.
        y: Gets the sums, `(T, n)`; rows may lie apart.

    Raises:
        ValueError: A dtype or a shape does not fit.
    """
    _check("experts_out", weight, bias, ids)
    if x.shape != (ids.shape[0] * ids.shape[1], weight.k) or y.shape != (ids.shape[0], weight.n):
        raise unfit(f"experts_out of weights ({weight.n}, {weight.k})", x=x, ids=ids, y=y)
    if weights.shape != ids.shape or weights.dtype is not torch.float32 or not _plain(weights):
        raise unfit("experts_out: contiguous weights of float32 for each id", weights=weights, ids=ids)
    _multiply(EXPERTS_OUT, x, (weights,), ids, weight, bias, y)


def _multiply(
    entry: Entry,
    x: Tensor,
    weights: tuple[Tensor, ...],
    ids: Tensor,
    weight: PackedExperts,
    bias: Tensor | None,
    y: Tensor,
) -> None:
    if x.stride(-1) != 1 and x.numel() > 0:
        x = x.contiguous()
    dtypes = (code(x, entry.name), code(y, entry.name))
    if y.stride(-1) != 1:
        raise ValueError(f"{entry.name}: results whose columns lie apart ({shown(y)}) have no place")
    strides = (weight.data.stride(0), 0 if bias is None else bias.stride(0), x.stride(0), y.stride(0))
    shape = (*ids.shape, len(weight.data), weight.n, weight.k)
    sizes = (*shape, *strides, *dtypes, weight.code, torch.get_num_threads())
    workspace = torch.empty(workspace_bytes(entry, sizes), dtype=torch.uint8)
    parts = (x, weight.data, *weights, ids, bias, y, workspace)
    entry(*(_address(part) for part in parts), *sizes)


def workspace_bytes(entry: Entry, sizes: tuple[int, ...]) -> int:
    """Return the bytes of workspace of a call with these `sizes` (fields of `entry`) or fewer tokens."""
    function = getattr(library(), f"{PREFIX}{entry.name}_workspace")
    function.restype = ctypes.c_int64
    return int(function(entry.pack(*(0 for _ in entry.pointers), *sizes)))


def _check_routing(routing: Routing, experts: int) -> None:
    if not routing.top_k <= experts <= MOST_EXPERTS:
        raise ValueError(f"route: {routing.top_k} of {experts} experts, of {MOST_EXPERTS} at most, cannot be chosen")
    size, rest = divmod(experts, routing.groups)
    if rest or (routing.groups > routing.top_groups and routing.group_by == "top2" and size < 2):
        why = "of at least two" if not rest else "of equal sizes"
        raise ValueError(f"route: {experts} experts are no {routing.groups} groups {why}")


def _check(what: str, weight: PackedExperts, bias: Tensor | None, ids: Tensor) -> None:
    """Refuse weights that are not where they are said to be, biases of others, and ids of another kind."""
    data = weight.data
    fits = data.dim() == 2 and data.dtype is torch.uint8 and data.is_cpu and data.stride(1) == 1
    if not fits or data.shape[1] < packed_bytes(weight.format, weight.n, weight.k):
        wanted = f"{weight.format.name} ({weight.n}, {weight.k})"
        raise ValueError(f"{what}: packed weights {wanted} of each expert do not lie in {shown(data)}")
    if ids.dim() != 2 or ids.dtype is not torch.int32 or not _plain(ids):
        raise ValueError(f"{what}: contiguous ids (tokens, experts of each) int32 expected, got {shown(ids)}")
    due = (len(data), weight.n)
    if bias is not None and (
        bias.shape != due or bias.dtype is not torch.float32 or not bias.is_cpu or bias.stride(1) != 1
    ):
        raise ValueError(f"{what}: biases must be {due} float32, their columns next to each other; got {shown(bias)}")


def _floats(x: Tensor) -> Tensor:
    """Return `x` in float32, its last dimension contiguous."""
    x = x if x.dtype is torch.float32 else x.float()
    return x if x.stride(-1) == 1 else x.contiguous()


def _plain(x: Tensor) -> bool:
    return x.is_cpu and x.is_contiguous()


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
