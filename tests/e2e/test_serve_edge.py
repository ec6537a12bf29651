"""`core serve` at the edge: https with an authority of one's own, a prefix, a page that may call, and the commands."""

from __future__ import annotations

import socket
import ssl
import time

import httpx
import pytest
import trustme

PAGE = "https://app.example.com"
PATIENCE = 30


class Place:
    """A server that speaks https, and the files that it does it with."""

    def __init__(self, folder, launch, model, flags):
        self.folder, self.authority = folder, trustme.CA()
        self.ca = str(folder / "ca.pem")
        self.authority.cert_pem.write_to_path(self.ca)
        self.issue()
        files = ("--ssl-certfile", str(folder / "chain.pem"), "--ssl-keyfile", str(folder / "key.pem"))
        edge = ("--enable-ssl-refresh", "--root-path", "/llm", "--allowed-origins", f'["{PAGE}"]')
        self.server = launch(str(model), *flags, *files, *edge).wait_ready()

    def issue(self):
        issued = self.authority.issue_cert("127.0.0.1")
        (self.folder / "chain.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(self.folder / "key.pem"))

    def http(self):
        return httpx.Client(verify=ssl.create_default_context(cafile=self.ca), trust_env=False, timeout=60)

    def serial(self):
        context = ssl.create_default_context(cafile=self.ca)
        port = int(self.server.url.rpartition(":")[2])
        plain = socket.create_connection(("127.0.0.1", port), timeout=10)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
            return secure.getpeercert()["serialNumber"]


@pytest.fixture(scope="module")
def place(tmp_path_factory, launch, tiny):
    flags = ("--threads", "1", "--dtype", "float32", "--num-blocks", "100", "--served-model-name", "tiny")
    return Place(tmp_path_factory.mktemp("edge"), launch, tiny, flags)


def test_the_start_says_https(place):
    assert place.server.url.startswith("https://127.0.0.1:")
    assert f"curl {place.server.url}/v1/" in place.server.stdout


def test_a_page_generates_through_the_prefix(place):
    url = f"{place.server.url}/llm/v1/completions"
    with place.http() as http:
        asks = {"origin": PAGE, "access-control-request-method": "POST"}
        assert http.options(url, headers=asks).headers["access-control-allow-origin"] == PAGE
        body = {"prompt": "Hi", "max_tokens": 4, "temperature": 0, "ignore_eos": True, "stream": True}
        answer = http.post(url, json=body, headers={"origin": PAGE})
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.text.count("data: ") >= 5


def test_the_commands_take_an_authority(place, core, tmp_path):
    url, ca = place.server.url, place.ca
    words = ("complete", "-q", "Hi", "--max-tokens", "3", "--url")
    assert core(*words, f"{url}/llm/v1", "--ca", ca).returncode == 0
    refused = core(*words, url)
    assert refused.returncode == 1
    assert "CORE-S190" in refused.stderr and "--ca FILE" in refused.stderr and "Traceback" not in refused.stderr
    empty = tmp_path / "empty.pem"
    empty.touch()
    assert "CORE-C187" in core(*words, url, "--ca", empty).stderr
    load = ("--num-prompts", "2", "--input-len", "4", "--output-len", "2", "--vocab-size", "300")
    assert core("bench", "serve", "--base-url", url, "--ca", ca, *load).returncode == 0


def test_batches_take_an_authority(place, core, tmp_path):
    requests, answers = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    body = '{"model": "tiny", "prompt": "Hi", "max_tokens": 2}'
    requests.write_text(f'{{"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {body}}}\n')
    done = core("run-batch", "-i", requests, "-o", answers, "--url", place.server.url, "--ca", place.ca)
    assert done.returncode == 0, done.stderr
    assert '"status_code":200' in answers.read_text().replace(" ", "")


def test_a_renewed_certificate_is_found(place):
    before, deadline = place.serial(), time.monotonic() + PATIENCE
    with place.http() as http:
        assert http.get(f"{place.server.url}/health").status_code == 200
        place.issue()
        while place.serial() == before:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert http.get(f"{place.server.url}/health").status_code == 200
    assert "Traceback" not in place.server.stderr


def test_a_start_that_cannot_be_is_one_line_before_anything_else(core):
    missing = core("serve", "no/such/model", "--ssl-certfile", "/nowhere/chain.pem")
    assert missing.returncode == 2
    assert missing.stderr.startswith("core: CORE-C171 ") and len(missing.stderr.splitlines()) == 1
    open_door = core("serve", "no/such/model", "--allowed-origins", "*", "--allow-credentials")
    assert open_door.stderr.startswith("core: CORE-C173 ")
