"""Imports, the device, and what its memory and its products do at most: what later figures are shares of."""

from __future__ import annotations

import time

from record import Record


def main() -> None:
    """Run the phase."""
    record = Record()
    began = time.perf_counter()
    import torch

    record.note("import torch, s", time.perf_counter() - began)
    record.note("torch", torch.__version__)
    began = time.perf_counter()
    import core
    from core.api.descriptors import PlatformSpec
    from core.plugins.catalog import Catalogue
    from core.plugins.drivers import instantiate, load_descriptors

    record.note("import core, s", time.perf_counter() - began)
    record.note("core", core.__version__)
    every = load_descriptors(Catalogue.scan().entries(PlatformSpec.group))[0]
    platform = instantiate(next(one for one in every if one.entry.name == record.platform), {})
    began = time.perf_counter()
    device = platform.open(threads=None, seed=0, index=0)
    record.note("open the device, s", time.perf_counter() - began)
    for name, value in platform.describe().items():
        record.note(name, value)
    queue = platform.queue()
    with record.part("bandwidth"):
        size = 2**20 if record.small else 2**30
        source, target = (torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(2))
        seconds = timed(lambda: target.copy_(source), queue)
        record.note("memory, GB/s", 2 * size / seconds / 1e9)
    with record.part("products"):
        side, dtype = (64, torch.float32) if record.small else (8192, torch.bfloat16)
        left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
        record.note("products, TFLOP/s", 2 * side**3 / timed(lambda: left @ right, queue) / 1e12)
    platform.close()


def timed(work, queue, rounds=20):
    """Return the seconds of one call, by fences around many."""
    work()
    queue.fence().result()
    began = time.perf_counter()
    for _ in range(rounds):
        work()
    queue.fence().result()
    return (time.perf_counter() - began) / rounds


if __name__ == "__main__":
    main()
