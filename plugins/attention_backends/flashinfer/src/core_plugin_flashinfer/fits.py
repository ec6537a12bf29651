"""Which cards the library is for; imports neither torch nor the library."""

from __future__ import annotations

from core.api.descriptors import AttentionRequest
from core.api.verdict import ProbeResult, Verdict

LEAST = (8, 0)
"""Compute capability from which on it is tested."""


def fits(request: AttentionRequest, probe: ProbeResult) -> Verdict:
    """Refuse cards of AMD, and those of NVIDIA before Ampere."""
    arch, here = str(probe.facts.get("arch", "")), probe.capability
    capability = ".".join(map(str, here))
    return Verdict.of(
        f"FlashInfer is for cards of NVIDIA, not for {arch}" if arch.startswith("gfx") else None,
        f"FlashInfer needs compute capability 8.0 or more, the card has {capability}" if () < here < LEAST else None,
    )
