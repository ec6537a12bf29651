from core.api import AttentionSpec

TRACED = AttentionSpec(
    name="traced",
    impl="seam_attention.backend:Traced",
    api=2,
    summary="The reference backend, with a KV spec of its own and a step after loading",
    maturity="experimental",
    devices={"cpu"},
    dtypes={"float32"},
    kv_dtypes={"float32"},
    features={"sliding_window"},
    kv_managers={"recent": "seam_attention.manager:RecentBlocks"},
)
