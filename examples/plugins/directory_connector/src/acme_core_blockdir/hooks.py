"""What the distribution has to say about a configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from core.api import Problem, hookimpl


@hookimpl
def core_validate(config: Mapping[str, Any]) -> Iterator[Problem]:
    """Warn when the stored blocks could never be found again."""
    if "blockdir" not in config["select"]["kv_connector"]:
        return
    if config["kv"]["hash_seed"] is None:
        yield Problem(
            level="warning",
            code="ACME-K1",
            message="blockdir keeps blocks that no later start will find: block hashes are random without --hash-seed",
            hint="Give every start the same secret text with --hash-seed or CORE_HASH_SEED.",
        )
    if not config["kv"]["prefix_caching"]:
        yield Problem(
            level="error",
            code="ACME-K2",
            message="blockdir needs prefix caching: blocks are found by the hashes that it computes",
            hint="Leave out --no-prefix-caching, or the connector.",
        )
