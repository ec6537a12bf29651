"""Asks whether this platform can be used here. Torch-free; runs in the parent at every start."""

from __future__ import annotations

from core.api.verdict import ProbeResult
from core_plugin_cpu.processor import available_cores, read_processor


def probe() -> ProbeResult:
    """Report the host processor: always available; cores and instruction sets as facts. Never raises."""
    try:
        processor, cores = read_processor(), available_cores()
    except Exception as error:
        return ProbeResult(available=True, reason=f"processor not recognised ({error})", facts={"cores": 1, "isa": ""})
    isa = ", ".join(processor.isa)
    found = f"{cores} core{'s' if cores != 1 else ''}" + (f", {isa}" if isa else "")
    return ProbeResult(available=True, reason=found, facts={"cores": cores, "isa": isa, "processor": processor.name})
