"""What the machine gives just now: bytes from memory, and products of bfloat16, by the best of core and torch."""

from __future__ import annotations

import time
from collections.abc import Callable

from common import read_spec, report

_BYTES = 1 << 30
_ROWS, _WIDTH = 1024, 4096


def least(run: Callable[[], object], count: int = 5) -> float:
    """Return the least seconds of some calls after a first one."""
    run()
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def main() -> None:
    """Measure the bytes that a sum, or a product of one row, reads from memory, and a large product."""
    spec = read_spec()
    import torch
    import torch.nn.functional as F  # noqa: N812
    from core_plugin_cpu.native import gemm, library

    torch.set_num_threads(spec["threads"])
    numbers = torch.ones(_BYTES // 4)
    seconds = {"torch": least(numbers.sum) / _BYTES}
    del numbers
    x, weight = torch.randn(_ROWS, _WIDTH).bfloat16(), torch.randn(_WIDTH, _WIDTH).bfloat16()
    operations = 2 * _ROWS * _WIDTH * _WIDTH
    products = {"torch": least(lambda: F.linear(x, weight))}
    if library.available():
        packed = gemm.pack(weight)
        products["core"] = least(lambda: gemm.linear(x, packed))
        long = gemm.pack(torch.ones(1 << 16, _WIDTH, dtype=torch.bfloat16))
        seconds["core"] = least(lambda: gemm.linear(x[:1], long)) / long.nbytes
    report(stream_gb_s=1e-9 / min(seconds.values()), products_gflop_s=1e-9 * operations / min(products.values()))


if __name__ == "__main__":
    main()
