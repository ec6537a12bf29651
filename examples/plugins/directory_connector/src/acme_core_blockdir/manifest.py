"""Manifest of the distribution: its plugins' descriptors, as data."""

from __future__ import annotations

from core.api import KVConnectorSpec

BLOCKDIR = KVConnectorSpec(
    name="blockdir",
    impl="acme_core_blockdir.store:DirectoryStore",
    worker_impl="acme_core_blockdir.mover:DirectoryMover",
    api=2,
    summary="Keeps KV blocks in the files of a directory; a later start finds them again",
    options="acme_core_blockdir.options:BlockdirOptions",
)
