"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import OptionSection, RouteSpec

RESUMABLE = RouteSpec(
    name="resumable",
    impl="core_plugin_resumable.routes:ResumableRoutes",
    api=1,
    summary="Streams that a client reads on after its connection broke: /v1/stream/{id}, /v1/streams",
    mounts=("/v1/stream", "/v1/streams"),
    automatic=True,
    settings=("resume_seconds", "resume_bytes"),
    exposed_headers=("x-stream-id",),
)

RESUMABLE_OPTIONS = OptionSection(
    name="resumable",
    impl="core_plugin_resumable.options:ResumableOptions",
    api=1,
    summary="Options of streams that outlive a connection",
)
