"""Run a script or `-m MODULE` as on a processor with fewer instruction sets: `run_capped.py avx2 SCRIPT ARGUMENTS`.

vLLM chooses its kernels by what torch says of the processor.
"""

from __future__ import annotations

import runpy
import sys

_LEVELS = ("avx2", "avx_vnni", "avx512", "avx512_bf16", "amx_tile", "amx_fp16")
"""From the least on. torch is never asked for `avx_vnni`."""


def main() -> None:
    """Have torch deny what is above the bound, and run."""
    import torch

    bound, *rest = sys.argv[1:]
    for level in _LEVELS[_LEVELS.index(bound) + 1 :]:
        setattr(torch.cpu, f"_is_{level}_supported", lambda: False)
    if rest[0] == "-m":
        sys.argv = rest[1:]
        runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = rest
        runpy.run_path(rest[0], run_name="__main__")


if __name__ == "__main__":
    main()
