"""Kernels at real shapes: against float64, and beside what the device's memory and products do at most."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import Record
from start import timed

TOLERANCE = 3e-2
"""Relative error in the 2-norm that bfloat16 may have against float64."""

SIZES = {
    "rms_norm": ((4096, 4096), (1, 8192), (257, 2880)),
    "silu_and_mul": ((4096, 2 * 14336), (1, 2 * 8192), (333, 2 * 2880)),
}
HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 32, 8, 128, 16
"""Of an 8B Llama."""

STEPS = {
    "64 rows of 4096, a token each": (64, 4096, 1),
    "a row of 16384, one token": (1, 16384, 1),
    "256 rows of 512, a token each": (256, 512, 1),
    "a prompt of 8192": (1, 8192, 8192),
    "8 prompts of 1024": (8, 1024, 1024),
}
"""What is attended: rows, their length, and the tokens of each in the step."""


def main() -> None:
    """Run the phase."""
    record = Record()
    from core.api.descriptors import AttentionSpec, KernelSpec, PlatformSpec
    from core.plugins.catalog import Catalogue
    from core.plugins.drivers import instantiate, load_descriptors

    catalogue = Catalogue.scan()
    every = load_descriptors(catalogue.entries(PlatformSpec.group))[0]
    chosen = next(one for one in every if one.entry.name == record.platform)
    device_type = chosen.spec(PlatformSpec).device_type
    platform = instantiate(chosen, {})
    device = platform.open(threads=None, seed=0, index=0)
    file = Path(sys.argv[2]).with_name("start.json")
    limits = json.loads(file.read_text())["figures"] if file.is_file() else {}
    with torch.inference_mode():
        for candidate in load_descriptors(catalogue.entries(AttentionSpec.group))[0]:
            if device_type in candidate.spec(AttentionSpec).devices and not record.small:
                with record.part(candidate.entry.name):
                    _attention(record, candidate, device, platform, limits)
        for candidate in load_descriptors(catalogue.entries(KernelSpec.group))[0]:
            if device_type in candidate.spec(KernelSpec).devices:
                with record.part(candidate.entry.name):
                    _compare(record, candidate, device)
    platform.close()


def _compare(record: Record, candidate: Any, device: torch.device) -> None:
    """Compare a kernel of an operation that `SIZES` has with its reference form in float64."""
    from core.api.descriptors import KernelSpec
    from core.ops.registry import REGISTRY
    from core.plugins.drivers import load_impl

    spec = candidate.spec(KernelSpec)
    for rows, width in () if record.small else SIZES.get(spec.op, ()):
        x = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
        weight = [torch.rand(width, device=device, dtype=torch.bfloat16)] if spec.op.endswith("norm") else []
        further = [1e-5] if spec.op.endswith("norm") else []
        form, reference = load_impl(spec.impl, candidate.entry), REGISTRY[spec.op].reference
        got = form(x, *weight, *further).double()
        due = reference(x.double(), *(one.double() for one in weight), *further)
        _hold(record, f"{candidate.entry.name} {rows} x {width}", got, due)


def _attention(record: Record, candidate: Any, device: torch.device, platform: Any, limits: dict[str, float]) -> None:
    """Attend at the sizes of `STEPS`: the last row against float64, and how long a layer takes.

    Steps of one token a row are timed as graphs where the backend and the platform have them: launches from Python
    would take longer than what they launch.
    """
    from core.api.attention import AttentionContext, AttentionSite
    from core.api.descriptors import AttentionSpec
    from core.plugins.drivers import load_impl

    name = candidate.entry.name
    made = load_impl(candidate.spec(AttentionSpec).impl, candidate.entry)
    backend = made(AttentionContext(device, torch.bfloat16, torch.bfloat16, BLOCK_SIZE))
    site = AttentionSite(0, HEADS, KV_HEADS, HEAD_DIM, HEAD_DIM**-0.5)
    layer = backend.layer(site)
    for title, (rows, length, count) in STEPS.items():
        batch = _batch(rows, length, count, device)
        cache = torch.zeros(
            rows * (length // BLOCK_SIZE), *backend.kv_layout(site).block_shape, device=device
        ).bfloat16()
        plan = backend.plan(batch)
        keys, values = (torch.randn(rows * length, KV_HEADS, HEAD_DIM, device=device).bfloat16() for _ in range(2))
        layer.write_kv(keys, values, cache, backend.plan(_batch(rows, length, length, device)))
        q = torch.randn(rows * count, HEADS, HEAD_DIM, device=device).bfloat16()
        found = layer.forward(q, cache, plan)
        last = slice((rows - 1) * length, rows * length)
        shown = min(count, 256)
        due = _dense(q[-shown:].double(), keys[last].double(), values[last].double())
        _hold(record, f"{name}, {title}", found[-shown:].double(), due)
        work = partial(layer.forward, q, cache, plan)
        if count == 1 and platform.graphs is not None and "replayable" in candidate.spec(AttentionSpec).features:
            work = _captured(backend, layer, q, cache, batch, platform.graphs)
        seconds = timed(work, platform.queue())
        record.note(f"{name}, {title}, us", seconds * 1e6)
        if count == 1 and "memory, GB/s" in limits:
            read = rows * length * 2 * KV_HEADS * HEAD_DIM * 2
            record.note(f"{name}, {title}, share of bandwidth", read / seconds / 1e9 / limits["memory, GB/s"])
        elif "products, TFLOP/s" in limits:
            done = rows * 4 * HEADS * HEAD_DIM * count * length / 2
            record.note(f"{name}, {title}, share of products", done / seconds / 1e12 / limits["products, TFLOP/s"])


def _captured(
    backend: Any, layer: Any, q: torch.Tensor, cache: torch.Tensor, batch: Any, graphs: Any
) -> Callable[[], object]:
    """Return a graph of a layer's attention of one token a row, to be replayed."""
    from core.api.steps import StepShape

    plan = backend.fixed_plan(StepShape(len(q), len(q), 1, batch.max_seq_len))
    backend.refresh(plan, batch)
    graph = graphs.capture(lambda step: layer.forward(q, cache, plan), None)
    return partial(graph.replay, None)


def _batch(rows: int, length: int, count: int, device: torch.device) -> Any:
    """Return a step of the last `count` tokens of each row."""
    from core.api.attention import BatchView

    starts, lengths = np.arange(rows + 1, dtype=np.int32) * count, np.full(rows, length, np.int32)
    tables = torch.arange(rows * length // BLOCK_SIZE, dtype=torch.int32, device=device).view(rows, -1)
    slots = torch.arange(rows * length, device=device).view(rows, length)[:, length - count :].reshape(-1)
    twins = (torch.from_numpy(starts).to(device), torch.from_numpy(lengths).to(device))
    return BatchView(starts, lengths, tables, slots, count, length, twins=twins)


def _dense(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return what the last queries `(count, heads, size)` of a row see, by definition."""
    group, count, length = HEADS // KV_HEADS, len(q), len(keys)
    keys, values = (one.repeat_interleave(group, 1) for one in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", q, keys) * HEAD_DIM**-0.5
    seen = torch.arange(length, device=q.device)[None] <= torch.arange(length - count, length, device=q.device)[:, None]
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, values).flatten(1)


def _hold(record: Record, name: str, got: torch.Tensor, due: torch.Tensor) -> None:
    """Write down the relative error in the 2-norm; too great a one is a failure."""
    error = float((got - due).norm() / due.norm())
    record.note(f"{name}, relative error", error)
    if not error <= TOLERANCE:
        record.fail(f"{name}: relative error {error:.3g}")


if __name__ == "__main__":
    main()
