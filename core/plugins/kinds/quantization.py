"""The kind `core.quantization`: how weights are stored and applied."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

QUANTIZATION = Kind(
    group="core.quantization",
    label="quantization method",
    summary="how weights are stored and applied",
    descriptor="core.api.descriptors:QuantSpec",
    api=2,
    oldest=2,  # nobody had published against API 1
    tier="stable",
    option="quantization",
    help="Quantization method.",
    needed=True,
    contracts={"impl": Contract("core.api.quantization:Format")},
    calls={"refine": ("request", "probe"), "forms_of": ("checkpoint",)},
    torch_free=("refine",),
    checks=("quantization", "updates", "stored_experts", "slices"),
)
