"""A server with a KV connector: its figures are on `/metrics`."""

from __future__ import annotations

import re

import pytest

SAMPLE = re.compile(
    r'^core_participant_stat\{model_name="[^"]*",participant="cpu_offload",place="",stat="(\w+)"\} ([\d.]+)$',
    re.MULTILINE,
)
FLAGS = ("--dtype", "float32", "--threads", "1", "--block-size", "8", "--num-blocks", "40", "--max-model-len", "160")


@pytest.mark.covers("KV-03", "OBS-04")
def test_the_figures_of_a_connector_are_on_the_page(launch, tiny):
    server = launch(str(tiny), *FLAGS, "--kv-connector", "cpu_offload", "--opt", "cpu_offload.capacity=4MiB")
    server.wait_ready()
    with server.http() as http:

        def told():
            return {name: float(value) for name, value in SAMPLE.findall(http.get("/metrics").text)}

        before = told()
        assert before["slots"] > 0 and before["saved"] == before["used"] == 0
        body = {"prompt": [3 + i % 90 for i in range(64)], "max_tokens": 4}
        assert http.post("/v1/completions", json=body).status_code == 200
        after = told()
    assert after["saved"] >= 8 and after["used"] >= 8
