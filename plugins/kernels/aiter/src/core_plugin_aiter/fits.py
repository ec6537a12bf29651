"""What the library is able to do on a card; whether it is used by itself is a matter of the platform's preferences."""

from __future__ import annotations

from fnmatch import fnmatchcase

from core.api.descriptors import AttentionRequest
from core.api.kernels import KernelRequest
from core.api.verdict import ProbeResult, Verdict

ATTENDS = ("gfx90a", "gfx94?", "gfx950")
MULTIPLIES = ("gfx94?", "gfx950")
BLOCK_SIZES = (16, 32)


def attention(request: AttentionRequest, probe: ProbeResult) -> Verdict:
    """Refuse other cards, and KV blocks that its decoding has no kernel for.

    `gfx90a` is able, and not preferred: there AITER is used where somebody asks for it.
    """
    size = request.block_size
    wrong = f"block size {size} is not one of {', '.join(map(str, BLOCK_SIZES))}" if size not in BLOCK_SIZES else None
    return Verdict.of(_against(probe, ATTENDS), wrong)


def products(request: KernelRequest, probe: ProbeResult) -> Verdict:
    """Refuse other cards."""
    return Verdict.of(_against(probe, MULTIPLIES))


def _against(probe: ProbeResult, able: tuple[str, ...]) -> str | None:
    arch = str(probe.facts.get("arch", ""))
    if any(fnmatchcase(arch, glob) for glob in able):
        return None
    return f"AITER is for {', '.join(able)}, the card is {arch or 'of no known architecture'}"
