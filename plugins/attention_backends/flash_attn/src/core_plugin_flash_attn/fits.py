"""Which cards each version is for; imports neither torch nor the library."""

from __future__ import annotations

from core.api.descriptors import AttentionRequest
from core.api.verdict import ProbeResult, Verdict


def version2(request: AttentionRequest, probe: ProbeResult) -> Verdict:
    """Refuse cards without its kernels: those of AMD, and of NVIDIA before Ampere."""
    return Verdict.of(_amd(probe), _capability(probe, (8, 0), None))


def version3(request: AttentionRequest, probe: ProbeResult) -> Verdict:
    """Refuse every card but Hopper."""
    return Verdict.of(_amd(probe), _capability(probe, (9, 0), (9, 0)))


def _amd(probe: ProbeResult) -> str | None:
    arch = str(probe.facts.get("arch", ""))
    return f"its kernels are for cards of NVIDIA, not for {arch}" if arch.startswith("gfx") else None


def _capability(probe: ProbeResult, least: tuple[int, int], most: tuple[int, int] | None) -> str | None:
    here = probe.capability
    if not here or (here >= least and (most is None or here <= most)):
        return None
    wanted = f"{least[0]}.{least[1]}" + ("" if most == least else " or more")
    return f"its kernels need compute capability {wanted}, the card has {'.'.join(map(str, here))}"
