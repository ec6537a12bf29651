"""The conformance kit on the device: every kernel, backend, format and model of the plugins that are installed."""

from __future__ import annotations

from record import Record
from side_by_side import side_by_side

ORDER = ("core.platforms", "core.attention_backends", "core.kernels", "core.quantization")
"""What is checked first; what is not named comes last."""


def main() -> None:
    """Run the phase."""
    from core.api.descriptors import PlatformSpec
    from core_testing.conformance import Level
    from core_testing.conformance.kit import jobs, subjects
    from core_testing.conformance.subject import Shared

    record = Record()
    every = subjects("", Shared())
    device = next(one for one in every if one.entry.name == record.platform).spec(PlatformSpec).device_type
    every.sort(key=lambda one: ORDER.index(one.entry.group) if one.entry.group in ORDER else len(ORDER))
    items = [
        f"{subject.title} {job.name}"
        for subject in every
        for job in jobs(subject, Level.L2)
        if job.name.endswith(f"@{device}")
    ]
    side_by_side(record, "kit", items, each=24, seconds=120)


if __name__ == "__main__":
    main()
