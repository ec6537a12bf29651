"""The kind `core.io_processors`: data into prompts, vectors into answers."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

IO_PROCESSOR = Kind(
    group="core.io_processors",
    label="I/O processor",
    summary="data into prompts, vectors into answers",
    descriptor="core.api.descriptors:IOProcessorSpec",
    option="io_processor",
    help="Who turns `data` into prompts and vectors into answers; auto: as the checkpoint says; none.",
    contracts={"impl": Contract("core.api.io_processors:IOProcessor")},
    torch_free=("impl",),
    checks=("io_processors",),
)
