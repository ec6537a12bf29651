"""The kind `core.kv_connectors`: external stores of KV blocks."""

from __future__ import annotations

from core.api.kinds import Contract, Kind

KV_CONNECTOR = Kind(
    group="core.kv_connectors",
    label="KV connector",
    summary="external stores of KV blocks",
    descriptor="core.api.descriptors:KVConnectorSpec",
    api=2,
    oldest=2,  # nobody had published against API 1
    tier="stable",
    option="kv_connector",
    help="KV connectors, in the order they are asked.",
    many=True,
    contracts={
        "impl": Contract("core.api.connectors:KVConnector"),
        "worker_impl": Contract("core.api.connectors:KVConnectorWorker"),
    },
    torch_free=("impl",),
    checks=("connectors",),
)
