"""Checks of the library's abilities; imports neither torch nor the library."""

from __future__ import annotations

from core.api.descriptors import AttentionRequest
from core.api.verdict import ProbeResult, Verdict

LEAST = (8, 0)
"""Compute capability from which on it is tested."""

SIZES = frozenset({64, 128, 256})
"""Sizes of heads that keep keys and values."""

LATENT = (512, 64)
"""Sizes of a latent and of a rotated key: those of DeepSeek V2 and V3."""

TILE = 128
"""Queries and heads of a tile. In a prompt the library hides the end of a query that a tile divides."""


def fits(request: AttentionRequest, probe: ProbeResult) -> Verdict:
    """Refuse cards of AMD, those of NVIDIA before Ampere, and what its kernels do not compute."""
    arch, here = str(probe.facts.get("arch", "")), probe.capability
    capability = ".".join(map(str, here))
    return Verdict.of(
        f"FlashInfer is for cards of NVIDIA, not for {arch}" if arch.startswith("gfx") else None,
        f"FlashInfer needs compute capability 8.0 or more, the card has {capability}" if () < here < LEAST else None,
        *(_latent(request) if "latent" in request.features else _heads(request)),
    )


def _heads(request: AttentionRequest) -> tuple[str | None, ...]:
    unfit, sinks = sorted(request.sizes - SIZES), "sinks" in request.features
    return (
        f"heads of {unfit[0]} are for latent attention alone" if unfit else None,
        "its kernels with sinks have no soft cap" if sinks and "softcap" in request.features else None,
        f"its kernels with sinks read no {request.kv_dtype} cache" if sinks and _rounds(request) else None,
    )


def _latent(request: AttentionRequest) -> tuple[str | None, ...]:
    other = sorted(request.latents - {LATENT})
    cut = request.num_heads < 1 or TILE % request.num_heads != 0
    return (
        f"its latents are of {LATENT[0]} and {LATENT[1]} numbers, not of {' and '.join(map(str, other[0]))}"
        if other
        else None,
        f"its tiles of {TILE} queries and heads cut those of {request.num_heads} heads" if cut else None,
        f"its latent attention reads no {request.kv_dtype} cache" if _rounds(request) else None,
    )


def _rounds(request: AttentionRequest) -> bool:
    return request.kv_dtype != request.dtype
