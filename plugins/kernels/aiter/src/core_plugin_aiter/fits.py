"""Checks of the library's abilities on a card; whether it is used by itself is for the platform's preferences."""

from __future__ import annotations

from fnmatch import fnmatchcase

from core.api.descriptors import AttentionRequest
from core.api.kernels import KernelRequest
from core.api.verdict import ProbeResult, Verdict

ATTENDS = ("gfx90a", "gfx94?", "gfx950")
MULTIPLIES = LATENTS = ("gfx94?", "gfx950")
BLOCK_SIZES = (16, 32)

SIZES = frozenset({64, 128})
"""Sizes of heads that keep keys and values."""

LATENT = (512, 64)
"""Sizes of a latent and of a rotated key: those of DeepSeek V2 and V3."""

HEADS = (16, 128)
"""Numbers of heads that there are kernels of latent attention for."""


def attention(request: AttentionRequest, probe: ProbeResult) -> Verdict:
    """Refuse other cards, and what there are no kernels for.

    `gfx90a` is able, and not preferred: there AITER is used where somebody asks for it.
    """
    latent = "latent" in request.features
    return Verdict.of(
        _against(probe, LATENTS if latent else ATTENDS), *(_latent(request) if latent else _heads(request))
    )


def products(request: KernelRequest, probe: ProbeResult) -> Verdict:
    """Refuse other cards."""
    return Verdict.of(_against(probe, MULTIPLIES))


def heads_of(heads: int) -> int:
    """Return the least number of heads that there are kernels of latent attention for; 0 if there is none."""
    return next((one for one in HEADS if heads <= one), 0)


def _heads(request: AttentionRequest) -> tuple[str | None, ...]:
    size, unfit = request.block_size, sorted(request.sizes - SIZES)
    return (
        f"block size {size} is not one of {', '.join(map(str, BLOCK_SIZES))}" if size not in BLOCK_SIZES else None,
        f"heads of {unfit[0]} are for latent attention alone" if unfit else None,
    )


def _latent(request: AttentionRequest) -> tuple[str | None, ...]:
    other, heads = sorted(request.latents - {LATENT}), request.num_heads
    return (
        f"its latents are of {LATENT[0]} and {LATENT[1]} numbers, not of {' and '.join(map(str, other[0]))}"
        if other
        else None,
        f"its latent attention has at most {HEADS[-1]} heads, the model has {heads}" if not heads_of(heads) else None,
        f"its latent attention computes in bfloat16, not in {request.dtype} over {request.kv_dtype}"
        if {request.dtype, request.kv_dtype} != {"bfloat16"}
        else None,
    )


def _against(probe: ProbeResult, able: tuple[str, ...]) -> str | None:
    arch = str(probe.facts.get("arch", ""))
    if any(fnmatchcase(arch, glob) for glob in able):
        return None
    return f"AITER is for {', '.join(able)}, the card is {arch or 'of no known architecture'}"
