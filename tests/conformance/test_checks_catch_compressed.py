"""Each check of compressed entries finds the backend that is wrong in its way, and only that check does."""

from __future__ import annotations

import pytest

MANIFEST = """
from core.api import AttentionSpec

SPEC = AttentionSpec(
    name="broken", impl="PKG.backend:Backend", api=2, summary="s", devices={"cpu"}, dtypes={DTYPES},
    kv_dtypes={DTYPES}, features={FEATURES},
)
"""

# A layer is off where `wrong` says so; the last query lacks a pick where `loses` does.
BACKEND = """
from types import SimpleNamespace
from core_plugin_torch_sdpa.backend import TorchSdpaBackend
import numpy as np
import torch

class Part:
    def __init__(self, inner, site, ctx):
        self.inner, self.site, self.ctx, self.known = inner, site, ctx, set()

    def write(self, entries, kv, plan):
        self.inner.write(entries, kv, plan.inner)
        self.known |= set((plan.batch.slots // self.ctx.block_size).tolist())

    def facts(self, plan):
        batch = plan.batch
        used = -(-torch.from_numpy(batch.seq_lens) // self.ctx.block_size)
        blocks = {b for table, n in zip(batch.block_tables.tolist(), used.tolist()) for b in table[:n]}
        return batch.seq_lens, np.diff(batch.query_starts), blocks, self.site, self.ctx

class Layer(Part):
    def forward(self, q, kv, plan, picked):
        out, sums = self.inner.forward(q, kv, plan.inner, picked)
        lens, counts, blocks, site, ctx = self.facts(plan)
        return out, sums + 0.5 if {wrong} else sums

class Picker(Part):
    def forward(self, q, weights, kv, plan):
        found = self.inner.forward(q, weights, kv, plan.inner)
        lens, counts, blocks, site, ctx = self.facts(plan)
        if found is not None and ({loses}):
            found[-1][found[-1] == found[-1].max()] = -1
        return None if {silent} else found

class Backend(TorchSdpaBackend):
    def plan(self, batch):
        return SimpleNamespace(inner=super().plan(batch), batch=batch)

    def compressed(self, site):
        return Layer(super().compressed(site), site, self._ctx)

    def picker(self, site):
        return Picker(super().picker(site), site, self._ctx)
"""

CASES = {
    "entries_match_reference": [
        {"wrong": "len(lens) == 4 and counts.max() == 100"},
        {"loses": "len(lens) == 4 and counts.max() == 100"},
        {"silent": "len(lens) == 4 and counts.max() == 100"},
    ],
    "entry_sizes_match_reference": [{"wrong": "site.ratio == 16"}, {"loses": "site.num_heads == 32"}],
    "entry_dtypes_match_reference": [{"wrong": "ctx.dtype == torch.bfloat16 and ctx.kv_dtype == torch.float16"}],
    "unused_entries_are_never_seen": [{"wrong": "kv.abs().max() > 1e4"}, {"loses": "kv.abs().max() > 1e4"}],
    "entry_blocks_can_be_copied": [{"wrong": "not blocks <= self.known"}, {"loses": "not blocks <= self.known"}],
}


@pytest.fixture
def attending(make_plugin):
    def make(features=("compressed",), **parts):
        source = BACKEND
        for key, value in {"loses": "False", "wrong": "False", "silent": "False", **parts}.items():
            source = source.replace("{" + key + "}", value)
        manifest = MANIFEST.replace("{DTYPES}", str({"float32", "bfloat16", "float16"}))
        manifest = manifest.replace("{FEATURES}", str(set(features)))
        return make_plugin("core.attention_backends", {"manifest": manifest, "backend": source})

    return make


def test_a_sound_backend_passes(attending):
    report = attending().report("compressed")
    assert (report.failures, {one.status for one in report.outcomes}) == ([], {"passed"})


@pytest.mark.parametrize(("check", "parts"), [(check, parts) for check, several in CASES.items() for parts in several])
def test_the_check_of_entries_and_no_other_fails(attending, check, parts):
    assert set(attending(**parts).failing("compressed")) == {check}


def test_a_backend_without_the_feature_is_not_asked(attending):
    assert {one.status for one in attending(features=("latent",)).report("compressed").outcomes} == {"skipped"}
