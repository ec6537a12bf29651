"""The test plugins as installed distributions: their sources on `sys.path`, with the metadata an installer writes."""

from __future__ import annotations

import importlib
import os
import sys
import tomllib
from pathlib import Path

import pytest

from core_testing.tinymodels import tiny_llama, tiny_model

PLUGINS = Path(__file__).parent / "plugins"


def install(name: str, site: Path) -> list[str]:
    """Write the metadata of one plugin into `site`; return the directories to put on `sys.path`."""
    project = tomllib.loads((PLUGINS / name / "pyproject.toml").read_text())["project"]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    sections = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(sections))
    return [str(site), str(PLUGINS / name / "src")]


@pytest.fixture
def plugins(tmp_path, monkeypatch):
    """Return a function that installs test plugins by name, in this process and in its children."""

    def make(*names: str) -> None:
        folders = [folder for name in names for folder in install(name, tmp_path / f"site-{name}")]
        for folder in dict.fromkeys(folders):
            monkeypatch.syspath_prepend(folder)
        before = os.environ.get("PYTHONPATH")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*dict.fromkeys(folders), *([before] if before else [])]))
        importlib.invalidate_caches()

    yield make
    for name in [name for name in sys.modules if name.partition(".")[0].startswith("seam_")]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    return str(tiny_llama(tmp_path_factory.mktemp("models") / "llama"))


@pytest.fixture(scope="session")
def windowed(tmp_path_factory):
    """A model whose layers all have a window of five tokens."""
    return str(tiny_model(tmp_path_factory.mktemp("models") / "mistral", "mistral_window"))


@pytest.fixture(scope="session")
def latents(tmp_path_factory):
    """A model with latent attention, without experts."""
    sizes = {"kv_lora_rank": 24, "qk_nope_head_dim": 14, "qk_rope_head_dim": 12, "v_head_dim": 10, "q_lora_rank": None}
    plain = {"model_type": "deepseek_v2", "num_key_value_heads": 4, "first_k_dense_replace": 3}
    unused = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 1}
    return str(tiny_model(tmp_path_factory.mktemp("models") / "deepseek", **plain, **unused, **sizes))


@pytest.fixture(scope="session")
def sinks(tmp_path_factory):
    """A model whose heads have sinks, every other layer with a window."""
    sizes = {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 6}
    plain = {"model_type": "gpt_oss", "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}
    return str(tiny_model(tmp_path_factory.mktemp("models") / "gpt_oss", **plain, **sizes))


@pytest.fixture
def prompt():
    """`prompt(length, seed)` -> a prompt of that many token ids."""
    return lambda length, seed=0: {"prompt_token_ids": [3 + (i * 29 + seed * 7) % 90 for i in range(length)]}
