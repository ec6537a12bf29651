"""Instruction sets that engines are held to: how they run on processors that have no more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_SSE_AND_AVX2 = ("SSE42", "AVX", "AVX2", "BMI2", "FMA", "F16C")


@dataclass(frozen=True)
class Cap:
    """A bound.

    Attributes:
        environ: Variables that tell core's kernels, torch, oneDNN and MKL of it.
        ggml: What llama.cpp is built with; the rest is switched off.
    """

    environ: Mapping[str, str]
    ggml: tuple[str, ...]


def _environ(core: str, aten: str, onednn: str, mkl: str) -> dict[str, str]:
    return {
        "CORE_CPU_ISA": core,
        "ATEN_CPU_CAPABILITY": aten,
        "ONEDNN_MAX_CPU_ISA": onednn,
        "MKL_ENABLE_INSTRUCTIONS": mkl,
    }


CAPS: Mapping[str, Cap] = {
    "avx2": Cap(_environ("avx2", "avx2", "AVX2", "AVX2"), _SSE_AND_AVX2),
    "avx_vnni": Cap(_environ("avx_vnni", "avx2", "AVX2_VNNI", "AVX2"), (*_SSE_AND_AVX2, "AVX_VNNI")),
    "avx512": Cap(_environ("avx512", "avx512", "AVX512_CORE", "AVX512"), (*_SSE_AND_AVX2, "AVX512")),
}
"""Name -> the bound. `avx_vnni` is AVX2 with dot products of bytes, for which torch and MKL have no name; `avx512` is
the first generation: dot products neither of bytes nor of bfloat16."""
