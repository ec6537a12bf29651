"""Checks of the library's abilities; imports neither torch nor the library."""

from __future__ import annotations

from core.api.descriptors import AttentionRequest
from core.api.verdict import ProbeResult, Verdict
from core_plugin_flashmla.manifest import PAGE

HOPPER = (9, 0)

LATENT = (512, 64)
"""Sizes of a latent and of a rotated key: those of DeepSeek V2 and V3."""

MOST_HEADS = 128


def fits(request: AttentionRequest, probe: ProbeResult) -> Verdict:
    """Refuse every card but Hopper, and what its dense kernel does not compute."""
    arch, here, heads = str(probe.facts.get("arch", "")), probe.capability, request.num_heads
    capability = ".".join(map(str, here))
    other, size = sorted(request.latents - {LATENT}), request.block_size
    return Verdict.of(
        f"FlashMLA is for cards of NVIDIA, not for {arch}" if arch.startswith("gfx") else None,
        f"FlashMLA's dense kernel is for compute capability 9.0, the card has {capability}"
        if here and here != HOPPER
        else None,
        None if "latent" in request.features else "it has latent attention alone",
        f"its latents are of {LATENT[0]} and {LATENT[1]} numbers, not of {' and '.join(map(str, other[0]))}"
        if other
        else None,
        f"it has at most {MOST_HEADS} heads, the model has {heads}" if heads > MOST_HEADS else None,
        f"its pages have {PAGE} tokens, KV blocks have {size}: --block-size {PAGE}" if size != PAGE else None,
        f"it reads no {request.kv_dtype} cache" if request.kv_dtype != request.dtype else None,
    )
