"""Requests for the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator

from core_testing.conformance import RouteSample, Sample


def samples() -> Iterator[Sample]:
    """Yield requests and what is answered."""
    yield RouteSample("not paused", "GET", "/is_paused", answer=b'{"is_paused":false}')
    yield RouteSample("paused", "POST", "/pause", {"mode": "keep"}, answer=b'{"status":"paused"}')
    yield RouteSample("no such mode", "POST", "/pause", {"mode": "gently"}, status=400, answer=b"mode")
    yield RouteSample("all requests", "POST", "/abort_requests", {"abort_all": True}, answer=b'"aborted":[]')
    yield RouteSample("the state", "GET", "/server_info", answer=b'"draining":false')
    yield RouteSample("too many lines", "GET", "/server_log", query={"lines": "1001"}, status=400, answer=b"lines")
    yield RouteSample("the end", "POST", "/drain", {}, answer=b'"in_flight":0')
    yield RouteSample("no profile", "POST", "/stop_profile", {}, status=409, answer=b"no_profile")
    yield RouteSample("no update", "POST", "/finish_weight_update", {}, status=501, answer=b"--weight-transfer")
    yield RouteSample("no adapters", "POST", "/v1/load_lora_adapter", {}, status=501, answer=b"not_implemented")
