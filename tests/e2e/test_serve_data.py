"""A served model that reads pictures and no text, with the I/O processor that its configuration names."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

PLUGIN = Path(__file__).parents[1] / "seams" / "plugins" / "io_processor"
PICTURE = (np.arange(8 * 12).reshape(8, 12) % 7).tolist()


@pytest.fixture(scope="module")
def weight():
    return torch.randn(6, 16, generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def served(launch, tmp_path_factory, weight):
    site, model = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("models") / "patches"
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"].items()
    text = "\n".join(
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in found.items()) for group, found in points
    )
    (info / "entry_points.txt").write_text(text)
    model.mkdir()
    config = {"architectures": ["SeamPatches"], "hidden_size": 6, "patch": 4, "io_processor_plugin": "picture"}
    (model / "config.json").write_text(json.dumps(config))
    save_file({"project.weight": weight, "project.bias": torch.zeros(6)}, model / "model.safetensors")
    path = os.pathsep.join([str(site), str(PLUGIN / "src"), os.environ.get("PYTHONPATH", "")])
    return launch(str(model), "--threads", "1", "--dtype", "float32", PYTHONPATH=path).wait_ready()


@pytest.mark.covers("POOL-03")
def test_pictures_are_answered_and_texts_refused(served, weight):
    picture = np.array(PICTURE, np.float32)
    cut = np.array([picture[y : y + 4, x : x + 4].reshape(-1) for y in (0, 4) for x in (0, 4, 8)])
    assert "/pooling" in served.stdout  # what to ask is said at the start
    with served.http() as http:
        answer = http.post("/pooling", json={"data": PICTURE, "model": "patches"}).json()
        np.testing.assert_allclose(answer["data"], cut @ weight.numpy().T, atol=1e-3)
        for body, status in (({"input": "a text"}, 400), ({"data": "a text"}, 400), ({"data": [[1.5] * 4] * 4}, 200)):
            found = http.post("/pooling", json=body)
            assert found.status_code == status
            assert status == 200 or found.json()["error"]["param"] == next(iter(body))
        assert http.get("/health").status_code == 200
        assert http.get("/v1/models").json()["data"][0]["id"] == "patches"
    gauges = served.gauges()
    assert gauges["core_prompt_tokens_total"] == 7
    assert gauges["core_num_requests_running"] == 0
