"""Each check of picked positions finds the backend that is wrong in its way, and only that check does."""

from __future__ import annotations

import pytest

MANIFEST = """
from core.api import AttentionSpec

SPEC = AttentionSpec(
    name="broken", impl="PKG.backend:Backend", api=2, summary="s", devices={"cpu"}, dtypes={DTYPES},
    kv_dtypes={DTYPES}, features={FEATURES},
)
"""

# One pick of the last query is missing where `loses` says so; attention is off where `wrong` does.
BACKEND = """
from types import SimpleNamespace
from core_plugin_torch_sdpa.backend import TorchSdpaBackend
import numpy as np
import torch

class Picker:
    def __init__(self, inner, site, ctx):
        self.inner, self.site, self.ctx, self.known = inner, site, ctx, set()

    def write(self, key, kv, plan):
        self.inner.write(key, kv, plan.inner)
        self.known |= set((plan.batch.slots // self.ctx.block_size).tolist())

    def forward(self, q, weights, kv, plan):
        found = self.inner.forward(q, weights, kv, plan.inner)
        batch, site, ctx = plan.batch, self.site, self.ctx
        lens, counts = batch.seq_lens, np.diff(batch.query_starts)
        used = -(-torch.from_numpy(lens) // ctx.block_size)
        blocks = {b for table, n in zip(batch.block_tables.tolist(), used.tolist()) for b in table[:n]}
        if found is not None and ({loses}):
            found[-1][found[-1] == found[-1].max()] = -1
        return None if {silent} else found

class Layer:
    def __init__(self, inner, site):
        self.inner, self.site, self.use_up = inner, site, inner.use_up

    def write(self, latent, rope_key, kv, plan):
        self.inner.write(latent, rope_key, kv, plan.inner)

    def forward(self, q, q_rope, kv, plan):
        return self.inner.forward(q, q_rope, kv, plan.inner)

    def forward_picked(self, q, q_rope, kv, plan, picked):
        site, batch = self.site, plan.batch
        out = self.inner.forward_picked(q, q_rope, kv, plan.inner, picked)
        return out + 0.5 if {wrong} else out

class Backend(TorchSdpaBackend):
    def plan(self, batch):
        return SimpleNamespace(inner=super().plan(batch), batch=batch)

    def latent(self, site):
        return Layer(super().latent(site), site)

    def picker(self, site):
        return Picker(super().picker(site), site, self._ctx)
    {more}
"""

CASES = {
    "picks_match_reference": {"loses": "len(lens) == 4 and counts.max() == 100"},
    "pick_sizes_match_reference": {"loses": "site.num_heads == 32"},
    "pick_dtypes_match_reference": {"loses": "ctx.dtype == torch.bfloat16 and ctx.kv_dtype == torch.float16"},
    "rows_within_the_picks_see_everything": {"wrong": "site.picks == 48"},
    "unused_index_keys_are_never_picked": {"loses": "kv.abs().max() > 1e4"},
    "picker_blocks_can_be_copied": {"loses": "not blocks <= self.known"},
    "picker_layout_holds_a_token": {
        "more": """
    def picker_layout(self, site):
        from core.api import KVLayout
        inner = super().picker_layout(site)
        class Small(KVLayout):
            bytes_per_block = 1
        return Small(inner.block_shape, inner.dtype)
"""
    },
}


@pytest.fixture
def picking(make_plugin):
    def make(features=("latent", "picks"), **parts):
        source = BACKEND
        for key, value in {"loses": "False", "wrong": "False", "silent": "False", "more": "", **parts}.items():
            source = source.replace("{" + key + "}", value)
        manifest = MANIFEST.replace("{DTYPES}", str({"float32", "bfloat16", "float16"}))
        manifest = manifest.replace("{FEATURES}", str(set(features)))
        return make_plugin("core.attention_backends", {"manifest": manifest, "backend": source})

    return make


def test_a_sound_picker_passes(picking):
    report = picking().report("picks")
    assert (report.failures, {one.status for one in report.outcomes}) == ([], {"passed"})


@pytest.mark.covers("ATTN-10")
@pytest.mark.parametrize("check", CASES)
def test_the_check_of_picks_and_no_other_fails(picking, check):
    assert set(picking(**CASES[check]).failing("picks")) == {check}


def test_layers_that_do_not_see_what_they_are_told_are_found(picking):
    failing = picking(wrong="batch.seq_lens.max() > 149").failing("picks")
    assert set(failing) == {"picks_match_reference"}
    assert "an output is off by" in failing["picks_match_reference"]


def test_none_for_a_row_that_is_longer_is_found(picking):
    failing = picking(silent="len(lens) == 4 and counts.max() == 100").failing("picks")
    assert set(failing) == {"picks_match_reference"}
    assert "the picker returns None for a row of 100 tokens, more than 20" in failing["picks_match_reference"]


def test_a_backend_without_pickers_is_not_asked_for_them(picking):
    assert {one.status for one in picking(features=("latent",)).report("picks").outcomes} == {"skipped"}


def test_picks_without_latent_layers_are_refused(picking):
    failing = picking(features=("picks",)).failing("picks")
    assert all("not latent" in message for message in failing.values())
