"""HTTPS: certificates that fit, that do not, that change, and clients that bring their own."""

from __future__ import annotations

import logging
import os
import socket
import ssl
from pathlib import Path

import httpx
import pytest
import trustme

from core.api.errors import ConfigError
from core.options.server import ServerOptions
from core.server import tls
from core.server.edge import PRIVATE
from core.server.tls import Certificates, certificates

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "Hi"}]}


class Files:
    """An authority, a certificate of this machine with its key, and where they lie."""

    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.ca, self.chain, self.key = (str(folder / name) for name in ("ca.pem", "chain.pem", "key.pem"))
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(self.ca)
        self.issue()

    def issue(self):
        issued = self.authority.issue_cert("127.0.0.1", "localhost")
        # As tools that renew do it: a new file in the place of the old one.
        for path, content in (
            (self.chain, b"".join(blob.bytes() for blob in issued.cert_chain_pems)),
            (self.key, issued.private_key_pem.bytes()),
        ):
            with open(path + ".new", "wb") as file:
                file.write(content)
            os.replace(path + ".new", path)

    @property
    def server(self):
        return {"ssl_certfile": self.chain, "ssl_keyfile": self.key}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("other"))


def client(ca, chain=None, key=None):
    context = ssl.create_default_context(cafile=ca)
    if chain:
        context.load_cert_chain(chain, key)
    return httpx.Client(verify=context, trust_env=False, timeout=10)


@pytest.fixture(scope="module")
def server(live, fake, files):
    with live(fake(reply="abcdefgh"), **files.server) as running:
        yield running


def test_answers_and_streams(server, files):
    assert server.url == f"https://127.0.0.1:{server.port}"
    with client(files.ca) as http:
        assert http.post(server.url + CHAT, json=BODY).json()["choices"][0]["message"]["content"] == "abcdefgh"
        answer = http.post(server.url + CHAT, json={**BODY, "stream": True})
        assert answer.text.count("data: ") == 8 + 2


def test_the_authority_is_checked_by_clients(server, other):
    with client(other.ca) as http, pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        http.get(server.url + "/health")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_versions_are_refused(server, files):
    context = ssl.create_default_context(cafile=files.ca)
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain, pytest.raises(ssl.SSLError):
        context.wrap_socket(plain, server_hostname="127.0.0.1")


@pytest.mark.parametrize(
    "sent", [b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n", b"\x00" * 100, b"\x16\x03\x01\x00\x05abcde"]
)
def test_what_is_not_tls_ends_the_connection_and_nothing_else(server, files, caplog, sent):
    with caplog.at_level(logging.WARNING), socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain:
        plain.sendall(sent)
        try:
            answer = plain.recv(4096)
        except ConnectionResetError:
            answer = b""
    assert not answer.startswith(b"HTTP/")
    assert caplog.records == []
    with client(files.ca) as http:
        assert http.get(server.url + "/health").status_code == 200


def test_clients_that_must_bring_a_certificate(live, llm, files, other):
    with live(llm, **files.server, ssl_ca_certs=other.ca, ssl_cert_reqs=2) as server:
        with client(files.ca, other.chain, other.key) as http:
            assert http.get(server.url + "/v1/models").status_code == 200
        for chain, key in ((None, None), (files.chain, files.key)):
            with client(files.ca, chain, key) as http, pytest.raises(httpx.TransportError):
                http.get(server.url + "/health")


def test_clients_that_may_bring_a_certificate(live, llm, files, other):
    with live(llm, **files.server, ssl_ca_certs=other.ca, ssl_cert_reqs=1) as server:
        with client(files.ca) as http:
            assert http.get(server.url + "/health").status_code == 200
        with client(files.ca, files.chain, files.key) as http, pytest.raises(httpx.TransportError):
            http.get(server.url + "/health")


def serial(port, ca, name="localhost"):
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = name is not None
    plain = socket.create_connection(("127.0.0.1", port), timeout=5)
    with context.wrap_socket(plain, server_hostname=name) as secure:
        return secure.getpeercert()["serialNumber"]


def test_new_certificates_without_a_new_server(live, llm, tmp_path, until, monkeypatch):
    fresh = Files(tmp_path)
    kept = []
    monkeypatch.setattr(tls, "Certificates", lambda options: kept.append(Certificates(options)) or kept[-1])
    with live(llm, **fresh.server, enable_ssl_refresh=True) as server, client(fresh.ca) as http:
        before = serial(server.port, fresh.ca)
        assert http.get(server.url + "/health").status_code == 200
        assert not kept[0].refresh()
        fresh.issue()
        assert kept[0].refresh()
        # A connection that was open goes on; new ones get the new certificate, named or not.
        assert http.get(server.url + "/health").status_code == 200
        after = serial(server.port, fresh.ca)
        assert after != before
        assert serial(server.port, fresh.ca, None) == after


def test_new_authorities_replace_the_old_ones(live, llm, files, tmp_path, monkeypatch):
    first, second = Files(tmp_path / "first"), Files(tmp_path / "second")
    kept = []
    monkeypatch.setattr(tls, "Certificates", lambda options: kept.append(Certificates(options)) or kept[-1])
    options = {**files.server, "ssl_ca_certs": first.ca, "ssl_cert_reqs": 2, "enable_ssl_refresh": True}
    with live(llm, **options) as server:
        with client(files.ca, first.chain, first.key) as http:
            assert http.get(server.url + "/health").status_code == 200
        second.authority.cert_pem.write_to_path(first.ca)
        assert kept[0].refresh()
        with client(files.ca, second.chain, second.key) as http:
            assert http.get(server.url + "/health").status_code == 200
        with client(files.ca, first.chain, first.key) as http, pytest.raises(httpx.TransportError):
            http.get(server.url + "/health")


def test_a_renewal_that_is_half_done_changes_nothing(tmp_path, caplog):
    fresh = Files(tmp_path)
    found = certificates(ServerOptions(**fresh.server, enable_ssl_refresh=True))
    key = Path(fresh.key)
    old = key.read_bytes()
    fresh.issue()
    new = key.read_bytes()
    key.write_bytes(old)
    assert not found.refresh()
    assert "do not belong together" in caplog.text
    caplog.clear()
    assert not found.refresh() and caplog.records == []  # said once, not every two seconds
    key.unlink()
    assert not found.refresh()
    key.write_bytes(new)
    assert found.refresh()


@pytest.mark.parametrize(
    ("code", "change", "said"),
    [
        ("C171", {"ssl_certfile": "/nowhere/chain.pem"}, "--ssl-certfile: /nowhere/chain.pem cannot be read: No such"),
        ("C171", {"ssl_keyfile": "/nowhere/key.pem"}, "--ssl-keyfile: /nowhere/key.pem cannot be read: No such"),
        ("C171", {"ssl_keyfile": "OTHER_KEY"}, "do not belong together"),
        ("C171", {"ssl_keyfile": None}, "no certificate with its private key"),
        ("C171", {"ssl_certfile": "NOTES"}, "no certificate with its private key"),
        ("C171", {"ssl_keyfile": "ENCRYPTED"}, "encrypted"),
        ("C171", {"ssl_ca_certs": "NOTES", "ssl_cert_reqs": 2}, "holds no certificate"),
        ("C171", {"ssl_ca_certs": "/nowhere/ca.pem", "ssl_cert_reqs": 2}, "--ssl-ca-certs: /nowhere/ca.pem"),
        ("C172", {"ssl_ciphers": "ROT13"}, "ROT13"),
        ("C170", {"ssl_cert_reqs": 2}, "--ssl-ca-certs"),
        ("C170", {"ssl_ca_certs": "CA"}, "--ssl-cert-reqs 0"),
        ("C170", {"uds": "/tmp/x"}, "--uds"),
        ("C170", {"ssl_certfile": None}, "--ssl-keyfile means nothing"),
        ("C170", {"ssl_certfile": None, "ssl_keyfile": None, "enable_ssl_refresh": True}, "--enable-ssl-refresh"),
        ("C170", {"ssl_certfile": None, "ssl_keyfile": None, "ssl_cert_reqs": 1}, "--ssl-cert-reqs"),
    ],
)
def test_what_cannot_be_used_stops_the_start_in_one_line(files, other, tmp_path, code, change, said):
    notes, encrypted = tmp_path / "notes.pem", tmp_path / "encrypted.pem"
    notes.write_text("precious")
    encrypted.write_bytes(locked(files.key))
    named = {"OTHER_KEY": other.key, "NOTES": str(notes), "ENCRYPTED": str(encrypted), "CA": other.ca}
    change = {name: named.get(value, value) for name, value in change.items()}
    with pytest.raises(ConfigError) as caught:
        certificates(ServerOptions(**{**files.server, **change}))
    assert caught.value.code == f"CORE-{code}"
    assert said in str(caught.value) and "\n" not in str(caught.value)


def locked(path):
    from cryptography.hazmat.primitives import serialization as forms

    key = forms.load_pem_private_key(Path(path).read_bytes(), None)
    shape = forms.PrivateFormat.PKCS8
    return key.private_bytes(forms.Encoding.PEM, shape, forms.BestAvailableEncryption(b"secret"))


def test_certificate_and_key_in_one_file(files, tmp_path):
    both = tmp_path / "both.pem"
    both.write_text(Path(files.key).read_text() + Path(files.chain).read_text())
    assert certificates(ServerOptions(ssl_certfile=str(both))) is not None
    assert certificates(ServerOptions()) is None


def test_a_server_of_one_command_takes_nothing_of_this(files, other):
    options = {**files.server, "ssl_ca_certs": other.ca, "ssl_cert_reqs": 2, "ssl_ciphers": "x", "root_path": "/x"}
    pages = {"allowed_origins": ["*"], "allowed_methods": ["GET"], "allowed_headers": ["x"], "allow_credentials": True}
    outside = ServerOptions(**options, **pages, enable_ssl_refresh=True)
    inside = outside.model_copy(update={**PRIVATE, "uds": "/tmp/x"})
    assert inside == ServerOptions(uds="/tmp/x")
    assert certificates(inside) is None
