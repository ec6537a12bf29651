"""Foundation of a resolution, which is settled first, and the values derived from it."""

from __future__ import annotations

from dataclasses import dataclass

from core.api.descriptors import PlatformSpec
from core.api.shapes import ModelShape
from core.api.verdict import ProbeResult, Verdict
from core.api.weights import CheckpointInfo, CheckpointReader, ModelFiles
from core.plugins.drivers import Candidate, guarded, load_impl, typed
from core.selection.tasks import ChosenTask


@dataclass(slots=True)
class Foundation:
    """Foundation of a resolution: it is settled first, and everything else follows from it.

    Attributes:
        index: Which of the platform's devices; `probe` is what was found of it.
    """

    platform: Candidate
    probe: ProbeResult
    source: Candidate
    files: ModelFiles
    loader: Candidate
    reader: CheckpointReader
    checkpoint: CheckpointInfo
    model: Candidate
    shape: ModelShape
    index: int = 0

    @property
    def device(self) -> str:
        """Type of the platform's devices."""
        return self.platform.spec(PlatformSpec).device_type


@dataclass(frozen=True, slots=True)
class KernelPlace:
    """Where kernels are to run.

    Attributes:
        device, dtype: Type of the device, and compute dtype.
        probe: What the platform found.
        method: How the checkpoint says that it stores weights.
    """

    device: str
    dtype: str
    probe: ProbeResult
    method: str = "none"


@dataclass(slots=True)
class Derived:
    """Values derived from the foundation and the options; computed again when plugins change options."""

    drivers: list[Candidate]
    dtype: str
    kv_dtype: str
    block_size: int
    step_tokens: int
    max_model_len: int
    task: ChosenTask


def drivers_of(base: Foundation, derived: Derived) -> list[Candidate]:
    """Return everything that was chosen."""
    return [base.platform, base.source, base.loader, base.model, *derived.drivers]


def refined(candidate: Candidate, path: str | None, request: object, probe: ProbeResult) -> Verdict:
    """Return what a plugin's own function `path` says of a request that its data let pass; yes without one.

    Raises:
        PluginError: The function cannot be imported (CORE-P103), raises, or gives something else (CORE-P108).
    """
    if path is None:
        return Verdict()
    return typed(
        candidate.entry, path, guarded(candidate.entry, path, load_impl(path, candidate.entry), request, probe), Verdict
    )


def device_reason(device: str, devices: frozenset[str]) -> str | None:
    """Return why a plugin for `devices` cannot be used on one of the type `device`; None if it can."""
    return None if device in devices or "*" in devices else f"device {device} not in {{{', '.join(sorted(devices))}}}"
