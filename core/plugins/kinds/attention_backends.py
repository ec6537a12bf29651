"""The kind `core.attention_backends`: paged attention."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

ATTENTION = Kind(
    group="core.attention_backends",
    label="attention backend",
    summary="paged attention",
    descriptor="core.api.descriptors:AttentionSpec",
    api=2,
    oldest=2,  # nobody had published against API 1
    tier="stable",
    option="attention_backend",
    help="Attention backend.",
    needed=True,
    contracts={
        "impl": Contract(
            "core.api.attention:AttentionBackend",
            optional=(
                "core.api.attention:Encodes",
                "core.api.attention:Latent",
                "core.api.attention:Picks",
                "core.api.attention:ReportsKV",
                "core.api.attention:Replayable",
            ),
        ),
        "kv_managers": Contract("core.api.kvspecs:KVManager"),
    },
    calls={"refine": ("request", "probe")},
    torch_free=("refine",),
    checks=("attention", "rotations", "latents", "picks", "compressed", "features", "encoding", "replays"),
)
