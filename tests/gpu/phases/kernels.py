"""Kernels and attention on the device: the conformance kit, then real shapes against float64."""

from __future__ import annotations

import torch
from record import Record

TOLERANCE = 3e-2
"""Relative error in the 2-norm that bfloat16 may have against float64."""

SIZES = {
    "rms_norm": ((4096, 4096), (1, 8192), (257, 2880)),
    "silu_and_mul": ((4096, 2 * 14336), (1, 2 * 8192), (333, 2 * 2880)),
}


def main() -> None:
    """Run the phase."""
    record = Record()
    from core.api.descriptors import AttentionSpec, KernelSpec, PlatformSpec
    from core.plugins.catalog import Catalogue
    from core.plugins.drivers import instantiate, load_descriptors

    catalogue = Catalogue.scan()
    every = load_descriptors(catalogue.entries(PlatformSpec.group))[0]
    chosen = next(one for one in every if one.entry.name == record.platform)
    device_type = chosen.spec(PlatformSpec).device_type
    platform = instantiate(chosen, {})
    device = platform.open(threads=None, seed=0, index=0)
    record.note("memory", platform.describe().get("memory", ""))
    found = [*load_descriptors(catalogue.entries(KernelSpec.group))[0]]
    mine = [one for one in found if device_type in one.spec(KernelSpec).devices]
    for candidate in mine:
        with record.part(candidate.entry.name):
            _compare(record, candidate, device)
    backends = load_descriptors(catalogue.entries(AttentionSpec.group))[0]
    for candidate in backends:
        if device_type in candidate.spec(AttentionSpec).devices:
            with record.part(candidate.entry.name):
                _kit(record, f"attention_backends:{candidate.entry.name}", device_type)
    platform.close()


def _compare(record: Record, candidate, device: torch.device) -> None:
    """Compare a kernel of an operation that `SIZES` has with its reference form in float64."""
    from core.api.descriptors import KernelSpec
    from core.ops.registry import REGISTRY
    from core.plugins.drivers import load_impl

    spec = candidate.spec(KernelSpec)
    for rows, width in () if record.small else SIZES.get(spec.op, ()):
        x = torch.randn(rows, width, device=device, dtype=torch.bfloat16)
        weight = [torch.rand(width, device=device, dtype=torch.bfloat16)] if spec.op.endswith("norm") else []
        further = [1e-5] if spec.op.endswith("norm") else []
        form, reference = load_impl(spec.impl, candidate.entry), REGISTRY[spec.op].reference
        got = form(x, *weight, *further).double()
        due = reference(x.double(), *(one.double() for one in weight), *further)
        error = float((got - due).norm() / due.norm())
        record.note(f"{candidate.entry.name} {rows} x {width}, relative error", error)
        if error > TOLERANCE:
            record.fail(f"{candidate.entry.name} at {rows} x {width}: relative error {error:.3g}")


def _kit(record: Record, name: str, device_type: str) -> None:
    """Run the kit's checks on the device."""
    from core.testing.conformance import Level, run

    for plugin in run(name, level=Level.L2).plugins:
        on_device = [one for one in plugin.outcomes if one.check.endswith(f"@{device_type}")]
        record.note(f"{name}, checks on the device", len(on_device))
        for one in on_device:
            if one.status == "failed":
                record.fail(f"{name}: {one.check}: {one.message}")


if __name__ == "__main__":
    main()
