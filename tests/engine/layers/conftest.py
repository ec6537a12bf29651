"""A dense attention backend and a harness that runs one sequence through a loaded model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import pytest
import torch
from core_plugin_gemma.manifest import GEMMA
from core_plugin_huggingface.manifest import SAFETENSORS
from core_plugin_huggingface.reader import SafetensorsReader
from core_plugin_llama.manifest import LLAMA
from core_plugin_unquantized.manifest import NONE
from core_plugin_unquantized.plain import Plain

from core.api import AttentionContext, AttentionSite, KVLayout, ModelFiles
from core.api.descriptors import AttentionSpec
from core.config.resolved import EngineConfig, Options
from core.plugins.hooks import Hooks
from core.plugins.plan import PluginPlan
from core.worker.loader import LoadedModel, load_model
from core_testing.tinymodels import tiny_model

torch.set_num_threads(1)
CPU = torch.device("cpu")
LENGTH = 64
SPECS = {architecture: spec for spec in (LLAMA, GEMMA) for architecture in spec.architectures}


@dataclass
class DensePlan:
    """Tokens `start` to `end` of the only sequence run in this step."""

    start: int
    end: int


class DenseLayer:
    """Attention over a contiguous cache `(1, 2, length, kv_heads, head_dim)`, written out in full."""

    def __init__(self, site: AttentionSite) -> None:
        self.site = site

    def write_kv(self, k, v, kv, plan):
        kv[0, 0, plan.start : plan.end] = k
        kv[0, 1, plan.start : plan.end] = v

    def forward(self, q, kv, plan):
        site = self.site
        groups = site.num_heads // site.num_kv_heads
        keys, values = (part[: plan.end].repeat_interleave(groups, dim=1) for part in kv[0])
        scores = torch.einsum("qhd,khd->hqk", q, keys) * site.scale
        rows, columns = torch.arange(plan.start, plan.end)[:, None], torch.arange(plan.end)[None, :]
        visible = columns <= rows
        if site.window is not None:
            visible &= columns > rows - site.window
        if site.softcap is not None:
            scores = site.softcap * torch.tanh(scores / site.softcap)
        weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, values).flatten(1)


class DenseBackend:
    def __init__(self, ctx: AttentionContext) -> None:
        self.ctx = ctx

    def kv_layout(self, site):
        return KVLayout((2, LENGTH, site.num_kv_heads, site.head_dim), self.ctx.kv_dtype)

    def plan(self, batch):
        raise NotImplementedError

    def layer(self, site):
        return DenseLayer(site)


class Active:
    """What the loader asks of `ActivePlugins`."""

    def __init__(self, features: Iterable[str] = (), **changes: Any) -> None:
        self._features = frozenset(features)
        self._impls = {
            "core.models": resolve_name(LLAMA.impl),
            "core.quantization": Plain,
            "core.weight_loaders": SafetensorsReader,
            "core.attention_backends": DenseBackend,
            **{f"core.{group}": impl for group, impl in changes.items()},
        }

    def impl(self, group):
        return self._impls[group]

    def new_of(self, group, *arguments):
        return self._impls[group](*arguments)

    def guard_items(self, planned, what, function, *arguments):
        return function(*arguments)

    def planned(self, group):
        return None

    def options(self, group):
        return {}

    def specs(self, group):
        return []

    def spec(self, group):
        found = {"core.models": LLAMA, "core.weight_loaders": SAFETENSORS, "core.quantization": NONE}
        if group in found:
            return found[group]
        every = {"devices": {"cpu"}, "dtypes": {"float32"}, "kv_dtypes": {"float32"}}
        return AttentionSpec(
            name="dense", impl="tests:DenseBackend", api=2, summary="", features=self._features, **every
        )

    hooks = Hooks()


@dataclass
class Step:
    token_ids: torch.Tensor
    positions: torch.Tensor
    plans: list[DensePlan]


class Runner:
    """Runs one sequence, piece by piece."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self.length = 0
        for module in loaded.attentions:
            layout = loaded.backend.kv_layout(module.site)
            module.kv = torch.zeros((1, *layout.block_shape), dtype=layout.dtype)

    @torch.inference_mode()
    def run(self, tokens) -> torch.Tensor:
        """Feed the next tokens and return their logits."""
        ids = torch.as_tensor(np.asarray(tokens), dtype=torch.int64)
        plan = DensePlan(self.length, self.length + len(ids))
        positions = torch.arange(plan.start, plan.end)
        self.length = plan.end
        model = self.loaded.model
        return model.logits(model.forward(Step(ids, positions, [plan])))


def engine_config(
    path: Path, dtype: str = "float32", max_model_len: int = LENGTH, kv_dtype: str | None = None
) -> EngineConfig:
    checkpoint = SafetensorsReader().inspect(path)
    return EngineConfig(
        options=Options(),
        files=ModelFiles(reference=str(path), path=str(path), name=path.name),
        checkpoint=checkpoint,
        shape=resolve_name(SPECS[checkpoint.architecture].shape)(checkpoint.config),
        plan=PluginPlan(),
        dtype=dtype,
        kv_dtype=kv_dtype or dtype,
        max_model_len=max_model_len,
        block_size=16,
    )


@pytest.fixture
def load():
    """Return a function that loads the checkpoint in a directory."""

    def loader(
        path: Path,
        progress=lambda done, total: None,
        dtype: str = "float32",
        kv_dtype: str | None = None,
        max_model_len: int = LENGTH,
        **impls,
    ) -> LoadedModel:
        config = engine_config(path, dtype, max_model_len, kv_dtype)
        impls = {"models": resolve_name(SPECS[config.checkpoint.architecture].impl), **impls}
        return load_model(config, Active(**impls), CPU, progress)

    return loader


@pytest.fixture
def runner():
    return Runner


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """Return a function `(family, **overrides) -> directory`; equal calls share one directory."""
    made: dict[str, Path] = {}

    def make(family: str = "llama", **overrides) -> Path:
        key = repr((family, sorted(overrides.items())))
        if key not in made:
            made[key] = tiny_model(tmp_path_factory.mktemp(family), family, **overrides)
        return made[key]

    return make
