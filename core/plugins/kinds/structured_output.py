"""The kind `core.structured_output`: grammars."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

STRUCTURED_OUTPUT = Kind(
    group="core.structured_output",
    label="structured-output backend",
    summary="grammars",
    descriptor="core.api.descriptors:StructuredOutputSpec",
    option="structured_output",
    help="Structured-output backends in the order they are tried; auto: every one installed; or none.",
    contracts={
        "impl": Contract("core.api.structured:StructuredOutputBackend", optional=("core.api.structured:LoadsGrammars",))
    },
    torch_free=("impl",),
    driver="core.participants",
    context="core.api.structured:StructuredContext",
    checks=("grammars",),
)
