"""Attention over pages by definition, as one torch operation: whatever records the operations of a step sees it."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import torch

LIBRARY = torch.library.Library("seam_libraries", "FRAGMENT")
LIBRARY.define(
    "attend(Tensor q, Tensor k, Tensor v, Tensor? tables, Tensor starts, Tensor lengths, Tensor? slopes, "
    "Tensor? sinks, float scale, bool causal, int left, int right, int chunk, float cap, Tensor(a!) out) -> ()"
)


def _attend(q, k, v, tables, starts, lengths, slopes, sinks, scale, causal, left, right, chunk, cap, out):
    first_key = 0
    for row, length in enumerate(lengths.tolist()):
        begin, end = starts[row : row + 2].tolist()
        if tables is None:
            keys, values = k[first_key : first_key + length], v[first_key : first_key + length]
            first_key += length
        else:
            blocks = tables[row, : -(-length // k.shape[1])].long()
            keys, values = k[blocks].flatten(0, 1)[:length], v[blocks].flatten(0, 1)[:length]
        if begin == end:
            continue
        group = q.shape[1] // k.shape[-2]
        keys, values = (one.double().repeat_interleave(group, 1).transpose(0, 1) for one in (keys, values))
        queries = q[begin:end].double().transpose(0, 1)
        scores = queries @ keys.transpose(1, 2) * scale
        if cap:
            scores = (scores / cap).tanh() * cap
        place = torch.arange(length - (end - begin), length)[:, None]
        there = torch.arange(length)[None]
        if slopes is not None:
            scores = scores - slopes.double()[:, None, None] * (place - there).abs()
        hidden = there > place if causal else torch.zeros(len(place), length, dtype=torch.bool)
        if left >= 0:
            hidden = hidden | (there < place - left)
        if right >= 0:
            hidden = hidden | (there > place + right)
        if chunk:
            hidden = hidden | (there < place // chunk * chunk)
        scores = scores.masked_fill(hidden, -torch.inf)
        if sinks is not None:
            extra = sinks.double()[:, None, None].expand(-1, len(place), 1)
            shares = torch.softmax(torch.cat([scores, extra], -1), -1)[..., :-1]
        else:
            shares = torch.softmax(scores, -1)
        # Values behind the last token of a row are not read; those that are hidden count nothing, whatever they are.
        values = torch.where(hidden.all(0)[None, :, None], 0.0, values)
        out[begin:end] = (shares @ values).transpose(0, 1).to(out.dtype)


LIBRARY.impl("attend", _attend, "CompositeExplicitAutograd")


def attend(
    q, k, v, tables, starts, lengths, *, scale, causal=True, window=(-1, -1), chunk=0, cap=0.0, slopes=None, sinks=None
):
    """Return attention of rows, `(tokens, heads, head_dim)`.

    Args:
        k, v: Pages with `tables`, else tokens of all rows one behind the other.
    """
    out = torch.empty(q.shape, dtype=q.dtype)
    torch.ops.seam_libraries.attend(
        *(q, k, v, tables, starts, lengths, slopes, sinks, scale, causal, *window, chunk, cap or 0.0, out)
    )
    return out


def need(truth, text):
    """Raise where a call is not what the library's documentation asks for."""
    if not truth:
        raise AssertionError(f"the library would refuse or misread this: {text}")


def check_heads(q, k, v, paged):
    """What all libraries ask of queries, keys and values."""
    need(all(one.stride(-1) == 1 for one in (q, k, v)), "the last dimension is not contiguous")
    need(q.dtype == k.dtype == v.dtype, f"dtypes {q.dtype}, {k.dtype}, {v.dtype}")
    need(k.shape == v.shape and k.dim() == (4 if paged else 3), f"keys {tuple(k.shape)}, values {tuple(v.shape)}")
    need(q.shape[-1] == k.shape[-1] and q.shape[-2] % k.shape[-2] == 0, f"heads of {tuple(q.shape)}")


def check_rows(rows, **tensors):
    """Vectors of 32-bit integers, one for each row, or one more."""
    for name, one in tensors.items():
        need(one.dtype == torch.int32 and one.is_contiguous(), f"{name} is {one.dtype}")
        need(len(one) == rows, f"{name} has {len(one)} entries for {rows} rows")


def check_tables(tables, rows):
    """Block tables."""
    need(tables.dtype == torch.int32 and tables.stride(-1) == 1, f"block tables of {tables.dtype}")
    need(tables.shape[0] == rows, f"{tables.shape[0]} block tables for {rows} rows")


def module(monkeypatch, name, **functions):
    """Put a module of this name into `sys.modules`, so that it is found and imported."""
    made = ModuleType(name)
    made.__spec__ = ModuleSpec(name, None)
    made.__dict__.update(functions)
    monkeypatch.setitem(sys.modules, name, made)
    return made
