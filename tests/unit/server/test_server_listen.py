"""Claiming the address before anything is loaded."""

import os
import socket

import httpx
import pytest

from core.api.errors import ConfigError
from core.config.resolved import Options
from core.options.server import ServerOptions
from core.server import launch
from core.server.listen import bind


def test_a_free_port():
    listener = bind(ServerOptions(port=0))
    try:
        assert listener.url == f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        assert listener.socket.getsockname()[1] > 0
    finally:
        listener.close()


def test_a_taken_port_is_one_line_before_anything_starts():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        options = Options(server=ServerOptions(port=other.getsockname()[1]))
        with pytest.raises(ConfigError) as caught:
            launch.run(None, options)  # type: ignore[arg-type]  # nothing of the resolution is touched
    assert caught.value.code == "CORE-S101"
    assert str(options.server.port) in str(caught.value)
    assert "--port" in caught.value.hint
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.7"])
def test_a_host_that_is_not_here(host):
    with pytest.raises(ConfigError) as caught:
        bind(ServerOptions(host=host, port=0))
    assert caught.value.code == "CORE-S102"


def test_ipv6_url():
    try:
        listener = bind(ServerOptions(host="::1", port=0))
    except ConfigError:
        pytest.skip("no IPv6 here")
    assert listener.url.startswith("http://[::1]:")
    listener.close()


def test_unix_socket(live, llm, tmp_path):
    path = str(tmp_path / "core.sock")
    with live(llm, uds=path) as server:
        assert server.url == f"unix:{path}"
        with httpx.Client(transport=httpx.HTTPTransport(uds=path)) as client:
            assert client.get("http://x/health").status_code == 200
        with pytest.raises(ConfigError) as caught:
            bind(ServerOptions(uds=path))
        assert caught.value.code == "CORE-S101"
    assert not os.path.exists(path)


def test_a_stale_unix_socket_is_replaced(tmp_path):
    path = str(tmp_path / "core.sock")
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(path)
    stale.close()
    bind(ServerOptions(uds=path)).close()


def test_a_file_in_the_way_is_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("precious")
    with pytest.raises(ConfigError):
        bind(ServerOptions(uds=str(path)))
    assert path.read_text() == "precious"
