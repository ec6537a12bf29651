"""ALiBi slopes and attention sinks in native attention: results are those of attention written out in full."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from core_plugin_cpu.attention import NativeAttentionBackend
from core_plugin_cpu.native import library

from core.api import AttentionContext, AttentionSite, BatchView

pytestmark = pytest.mark.skipif(not library.available(), reason=f"no native library: {library.reason()}")

BLOCK, KV_HEADS, DIM = 16, 2, 32
CPU = torch.device("cpu")


def reference(q, k, v, site, sinks):
    """Attend over one sequence: `q` are its last tokens."""
    positions = torch.arange(len(k))
    queries = positions[-len(q) :]
    groups = site.num_heads // site.num_kv_heads
    k, v = (one.repeat_interleave(groups, dim=1).double() for one in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.double(), k) * site.scale
    if site.softcap is not None:
        scores = site.softcap * torch.tanh(scores / site.softcap)
    away = positions[None, :] - queries[:, None]
    if site.slopes is not None:
        moved = -(-away).clamp(min=0).double().sqrt() if site.rooted else away
        scores = scores + torch.tensor(site.slopes, dtype=torch.float64)[:, None, None] * moved
    seen = away <= 0
    if site.window is not None:
        seen &= away > -site.window
    scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        column = sinks.double()[:, None, None].expand(-1, len(q), 1)
        scores = torch.cat((scores, column), dim=-1)
        v = torch.cat((v, torch.zeros_like(v[:1])))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)


def run(site, lengths, counts, sinks, dtype=torch.float32, kv_dtype=None):
    """Return native results and references of rows with so many tokens, of which the last `counts` are queries."""
    torch.manual_seed(3)
    backend = NativeAttentionBackend(AttentionContext(CPU, dtype, kv_dtype or dtype, BLOCK))
    layer = backend.layer(site)
    if sinks is not None:
        layer.use_sinks(sinks)
    width = max(-(-length // BLOCK) for length in lengths)
    tables = torch.arange(1, 1 + width * len(lengths), dtype=torch.int32).view(len(lengths), width)
    layout = backend.kv_layout(site)
    kv = torch.zeros((1 + tables.numel(), *layout.block_shape), dtype=layout.dtype)
    kept = [[torch.randn(length, KV_HEADS, DIM).to(dtype) for _ in range(2)] for length in lengths]
    asked = [torch.randn(count, site.num_heads, DIM).to(dtype) for count in counts]

    def view(starts_at, ends):
        sizes = [end - start for start, end in zip(starts_at, ends, strict=True)]
        slots = [
            int(tables[row, p // BLOCK]) * BLOCK + p % BLOCK
            for row, (start, end) in enumerate(zip(starts_at, ends, strict=True))
            for p in range(start, end)
        ]
        starts = np.cumsum([0, *sizes]).astype(np.int32)
        return BatchView(starts, np.array(ends, np.int32), tables, torch.tensor(slots), max(sizes), max(ends))

    begin = [length - count for length, count in zip(lengths, counts, strict=True)]
    layer.write_kv(
        *(torch.cat([pair[i] for pair in kept]) for i in range(2)), kv, backend.plan(view([0] * len(lengths), lengths))
    )
    out = layer.forward(torch.cat(asked), kv, backend.plan(view(begin, lengths)))
    due = torch.cat([reference(q, *pair, site, sinks) for q, pair in zip(asked, kept, strict=True)])
    return out, due


SLOPES = tuple(2.0 ** -(i + 1) for i in range(6))
SINKS = torch.tensor([0.5, -2.0, 3.0, 30.0, -40.0, 1.5])
CASES = {
    "alibi": {"slopes": SLOPES},
    "alibi by the root": {"slopes": SLOPES, "rooted": True},
    "by the root in a window": {"slopes": SLOPES, "rooted": True, "window": 20, "softcap": 5.0},
    "sinks": {"sinks": True},
    "both in a window": {"slopes": SLOPES, "sinks": True, "window": 20},
    "sinks behind a soft cap": {"sinks": True, "softcap": 5.0},
    "alibi behind a soft cap": {"slopes": SLOPES, "softcap": 5.0},
}
BATCHES = {
    "decode": ([5, 70, 1], [1, 1, 1]),
    "a long text that is split": ([1500], [1]),
    "prompts": ([40, 170], [40, 33]),
    "both": ([300, 90, 600], [1, 90, 2]),
}


@pytest.mark.covers("ATTN-03")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("case", CASES)
def test_terms_of_heads_are_those_of_the_formula(case, batch, threads):
    given = dict(CASES[case])
    sinks = SINKS if given.pop("sinks", False) else None
    site = AttentionSite(0, 6, KV_HEADS, DIM, DIM**-0.5, sinks=sinks is not None, **given)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        out, due = run(site, *BATCHES[batch], sinks)
        rounded, _ = run(site, *BATCHES[batch], sinks, torch.bfloat16)
        scaled, _ = run(site, *BATCHES[batch], sinks, torch.bfloat16, torch.int8)
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(out.double(), due, atol=2e-5, rtol=1e-4)
    assert (rounded.double() - due).abs().max() < 0.06
    assert (scaled.double() - due).abs().max() < 0.12
