"""Which cards the kernels are for, beyond what the descriptor says as data; imports neither torch nor Triton."""

from __future__ import annotations

from core.api.descriptors import AttentionRequest
from core.api.verdict import ProbeResult, Verdict

LEAST = (8, 0)
"""Compute capability from which on Triton supports NVIDIA's cards."""


def fits(request: AttentionRequest, probe: ProbeResult) -> Verdict:
    """Refuse cards that Triton does not compile for.

    AMD's cards are of torch's type `cuda` as well: they are told apart by the name of their architecture (`gfx...`).
    """
    amd = str(probe.facts.get("arch", "")).startswith("gfx")
    old = request.device_type == "cuda" and not amd and () < probe.capability < LEAST
    capability = ".".join(str(part) for part in probe.capability)
    return Verdict.of(f"Triton needs compute capability 8.0, the card has {capability}" if old else None)
