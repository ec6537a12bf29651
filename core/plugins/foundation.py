"""What a resolution settles first, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass

from core.api.descriptors import PlatformSpec
from core.api.models import ModelShape, PoolingShape
from core.api.verdict import ProbeResult
from core.api.weights import CheckpointInfo, CheckpointReader, ModelFiles
from core.plugins.drivers import Candidate


@dataclass(slots=True)
class Foundation:
    """What is settled first, and what everything else follows from."""

    platform: Candidate
    probe: ProbeResult
    source: Candidate
    files: ModelFiles
    loader: Candidate
    reader: CheckpointReader
    checkpoint: CheckpointInfo
    model: Candidate
    shape: ModelShape

    @property
    def device(self) -> str:
        """Type of the platform's devices."""
        return self.platform.spec(PlatformSpec).device_type


@dataclass(slots=True)
class Derived:
    """What follows from the foundation and the options; computed again when plugins change options."""

    drivers: list[Candidate]
    dtype: str
    kv_dtype: str
    block_size: int
    step_tokens: int
    max_model_len: int
    pooling: PoolingShape | None


def drivers_of(base: Foundation, derived: Derived) -> list[Candidate]:
    """Return everything that was chosen."""
    return [base.platform, base.source, base.loader, base.model, *derived.drivers]


def device_reason(device: str, devices: frozenset[str]) -> str | None:
    """Return why a plugin for `devices` cannot be used on one of the type `device`; None if it can."""
    return None if device in devices or "*" in devices else f"device {device} not in {{{', '.join(sorted(devices))}}}"
