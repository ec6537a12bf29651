"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import KVConnectorSpec

CPU_OFFLOAD = KVConnectorSpec(
    name="cpu_offload",
    impl="core_plugin_cpu_offload.store:HostStore",
    worker_impl="core_plugin_cpu_offload.mover:HostMover",
    api=2,
    summary="Keeps KV blocks in host memory after they leave the device cache, by LRU or ARC",
    options="core_plugin_cpu_offload.options:OffloadOptions",
)
