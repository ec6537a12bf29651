"""Verdicts: what a candidate answers when asked whether it can serve a request."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Verdict(BaseModel):
    """Yes, or no with every reason (never only the first).

    Attributes:
        reasons: What speaks against the candidate; empty: nothing.
    """

    model_config = ConfigDict(frozen=True)

    reasons: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True when there is no reason against the candidate."""
        return not self.reasons

    @staticmethod
    def of(*reasons: str | None) -> Verdict:
        """Collect the reasons that are not empty."""
        return Verdict(reasons=tuple(reason for reason in reasons if reason))


class ProbeResult(BaseModel):
    """Result of probing this machine for a platform. Made by a torch-free function in milliseconds.

    Attributes:
        available: Whether a device of this platform can be used here.
        reason: Why not, or what was found ("2 cores, AVX-512 BF16").
        capability: Hardware capability as a comparable tuple, for example `(9, 0)`; empty if it has none.
        facts: Further data for the report and for other plugins' filters.
        features: What the device can do, by name (`amx`, `fp8_e4m3`); ask with `has`.
        preferences: Score adjustments `"<group>:<name>" -> points` for what was found, beside those of the descriptor.
        devices: Where there are several devices, what was found of each, by index; the first is what stands above.
    """

    model_config = ConfigDict(frozen=True)

    available: bool
    reason: str = ""
    capability: tuple[int, ...] = ()
    facts: dict[str, str | int | float | bool] = {}
    features: frozenset[str] = frozenset()
    preferences: dict[str, int] = {}
    devices: tuple[ProbeResult, ...] = ()

    @property
    def count(self) -> int:
        """How many devices can be used."""
        return len(self.devices) or int(self.available)

    def of(self, index: int) -> ProbeResult:
        """Return what was found of the device with this index. Raises `IndexError` if there is none."""
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.devices[index] if self.devices else self

    def has(self, feature: str) -> bool:
        """Say whether the device has a feature: it is named in `features`, or is a fact that is true."""
        return feature in self.features or self.facts.get(feature) is True
