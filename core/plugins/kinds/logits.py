"""The kind `core.logits`: changes of logits."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

LOGITS = Kind(
    group="core.logits",
    label="logits processor",
    summary="changes of logits",
    descriptor="core.api.descriptors:LogitsSpec",
    option="logits_processor",
    help="Logits processors, in the order they are applied.",
    many=True,
    contracts={"impl": Contract("core.api.logits:LogitsProcessor")},
    calls={"check": ("extra_args",)},
    torch_free=("check",),
    checks=("logits",),
)
