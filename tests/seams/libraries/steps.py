"""Single steps of a backend beside the reference backend: the same cache, but what no token owns is not a number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from core_plugin_torch_sdpa.backend import TorchSdpaBackend

from core.api.attention import AttentionContext, AttentionSite, BatchView
from core.api.steps import StepShape

CPU = torch.device("cpu")


@dataclass
class Step:
    """A step over a cache with history."""

    batch: BatchView
    clean: torch.Tensor
    poisoned: torch.Tensor
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor


def site_of(kv_heads=2, group=3, head_dim=8, **extra):
    return AttentionSite(0, kv_heads * group, kv_heads, head_dim, head_dim**-0.5, **extra)


def step_of(rows, site, size, dtype=torch.float32, seed=0):
    """`rows` are `(context, new)`."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    blocks = [-(-(context + new) // size) for context, new in rows]
    order = rng.permutation(np.arange(1, sum(blocks) + 3))
    tables = np.full((len(rows), max(blocks, default=0) + 2), order[-1], dtype=np.int32)
    shape = (len(order) + 1, 2, size, site.num_kv_heads, site.head_dim)
    clean, poisoned = torch.zeros(shape, dtype=dtype), torch.full(shape, torch.nan, dtype=dtype)
    slots, taken = [], 0
    for row, (context, new) in enumerate(rows):
        mine = order[taken : taken + blocks[row]]
        taken += blocks[row]
        tables[row, : blocks[row]] = mine
        past = torch.randn(2, context, site.num_kv_heads, site.head_dim).to(dtype)
        places = np.arange(context + new)
        at, offset = torch.from_numpy(mine[places // size]), torch.from_numpy(places % size)
        for cache in (clean, poisoned):
            for half in (0, 1):
                cache[at[:context], half, offset[:context]] = past[half]
        slots.append((at * size + offset)[context:])
    counts, lengths = [new for _, new in rows], [context + new for context, new in rows]
    batch = BatchView(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        np.array(lengths, dtype=np.int32),
        torch.from_numpy(tables),
        torch.cat([*slots, torch.empty(0, dtype=torch.int64)]).long(),
        max(counts, default=0),
        max(lengths, default=0),
    )
    q = torch.randn(sum(counts), site.num_heads, site.head_dim).to(dtype)
    k, v = torch.randn(2, sum(counts), site.num_kv_heads, site.head_dim).to(dtype)
    return Step(batch, clean, poisoned, q, k, v)


def context(size, dtype=torch.float32, options=None, kv_dtype=None):
    return AttentionContext(CPU, dtype, kv_dtype or dtype, size, options or {})


def run(backend, site, step, cache, *, fixed=False, sinks=None):
    """Write and attend."""
    layer = backend.layer(site)
    if sinks is not None:
        layer.use_sinks(sinks)
    if fixed:
        plan = backend.fixed_plan(StepShape(len(step.batch.seq_lens), len(step.batch.seq_lens), 1, 64))
        width = getattr(plan, "paged", plan).tables.shape[1]
        tables = torch.zeros(len(step.batch.seq_lens), width, dtype=torch.int32)
        have = min(width, step.batch.block_tables.shape[1])
        tables[:, :have] = step.batch.block_tables[:, :have]
        given = {name: getattr(step.batch, name) for name in step.batch.__slots__} | {"block_tables": tables}
        backend.refresh(plan, BatchView(**given))
    else:
        plan = backend.plan(step.batch)
    layer.write_kv(step.k, step.v, cache, plan)
    return layer.forward(step.q, cache, plan)


ROWS = {
    "prompts": [(0, 5), (0, 17), (0, 1)],
    "pieces": [(16, 7), (3, 20), (31, 1)],
    "tokens": [(0, 1), (15, 1), (16, 1), (40, 1)],
    "with an empty row": [(9, 4), (12, 0), (3, 1)],
    "one": [(33, 1)],
    "none": [],
}
"""Steps: `(context, new)` of each row."""


def same_as_reference(backend, site, rows, size, *, sinks=None, atol=1e-5, fixed=False, dtype=torch.float32):
    """Compare a step with the reference backend's."""
    step = step_of(rows, site, size, dtype)
    due = step.q.flatten(1)
    if len(due):
        due = run(TorchSdpaBackend(context(size, dtype)), site, step, step.clean, sinks=sinks)
    found = run(backend, site, step, step.poisoned, sinks=sinks, fixed=fixed)
    torch.testing.assert_close(found, due, atol=atol, rtol=1e-4)
