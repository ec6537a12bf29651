"""Which cards the library is for; imports neither torch nor the library."""

from __future__ import annotations

from core.api.kernels import KernelRequest
from core.api.verdict import ProbeResult, Verdict

GENERATIONS = {9: (9, 0), 10: None}
"""Major compute capability -> the only one of it that there are kernels for; None: all (10.0 and 10.3)."""


def fits(request: KernelRequest, probe: ProbeResult) -> Verdict:
    """Refuse all cards but Hopper and data-centre Blackwell."""
    here = probe.capability
    if str(probe.facts.get("arch", "")).startswith("gfx"):
        return Verdict.of(f"DeepGEMM is for cards of NVIDIA, not for {probe.facts['arch']}")
    if not here:
        return Verdict.of(None)
    fitting = here[0] in GENERATIONS and GENERATIONS[here[0]] in (None, tuple(here))
    capability = ".".join(map(str, here))
    return Verdict.of(None if fitting else f"DeepGEMM needs compute capability 9.0 or 10.x, the card has {capability}")
