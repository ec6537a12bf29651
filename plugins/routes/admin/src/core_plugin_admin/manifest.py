"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import RouteSpec

MOUNTS = (
    "/pause",
    "/resume",
    "/is_paused",
    "/drain",
    "/abort_requests",
    "/reset_prefix_cache",
    "/start_profile",
    "/stop_profile",
    "/server_info",
    "/server_log",
    "/init_weight_transfer_engine",
    "/start_weight_update",
    "/update_weights",
    "/finish_weight_update",
    "/update_weights_from_disk",
    "/weight_info",
    "/get_world_size",
    "/is_sleeping",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/sleep",
    "/wake_up",
    "/reset_mm_cache",
    "/reset_encoder_cache",
    "/update_weight_version",
    "/update_weights_from_tensor",
    "/update_weights_from_distributed",
)

ADMIN = RouteSpec(
    name="admin",
    impl="core_plugin_admin.routes:AdminRoutes",
    api=1,
    summary="Routes for whoever runs the server: /pause, /drain, /server_info, weight updates, ...",
    mounts=MOUNTS,
    automatic=True,
    settings=("drain_timeout",),
)
