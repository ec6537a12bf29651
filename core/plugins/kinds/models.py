"""The kind `core.models`: architectures."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

MODEL = Kind(
    group="core.models",
    label="model implementation",
    summary="architectures",
    descriptor="core.api.descriptors:ModelSpec",
    api=2,
    oldest=2,  # nobody had published against API 1
    tier="stable",
    option="model_impl",
    help="Model implementation.",
    needed=True,
    contracts={
        "impl": Contract(
            "core.api.models:Model",
            optional=("core.api.models:Classifies", "core.api.attention:AfterLoad"),
            may_lack=frozenset({"logits"}),  # a model that only pools has none
        )
    },
    calls={"shape": ("config",)},
    torch_free=("shape",),
    checks=("models", "encoders"),
)
