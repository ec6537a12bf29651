"""Each attention check finds the backend that is wrong in its way, and only that check does."""

from __future__ import annotations

import pytest

MANIFEST = """
from core.api import AttentionSpec

SPEC = AttentionSpec(
    name="broken", impl="PKG.backend:Backend", api=2, summary="s", devices={devices}, dtypes={dtypes},
    kv_dtypes={dtypes}, features={features},
)
"""

# Wrong where `wrong(batch, site, ctx)` says so, in every value that `forward` gives.
BACKEND = """
from types import SimpleNamespace
from core_plugin_torch_sdpa.backend import TorchSdpaBackend, TorchSdpaLayer
import numpy as np
import torch

def wrong(batch, site, ctx):
    counts = np.diff(batch.query_starts)
    lens = batch.seq_lens
    rows = len(lens)
    return {condition}

class Layer:
    def __init__(self, inner, site, ctx):
        self.inner, self.site, self.ctx, self.known = inner, site, ctx, set()

    def use_sinks(self, sinks):
        self.inner.use_sinks(sinks)

    def write_kv(self, k, v, kv, plan):
        self.inner.write_kv(k, v, kv, plan.inner)
        {write}

    def forward(self, q, kv, plan):
        out = self.inner.forward(q, kv, plan.inner)
        {forward}
        return out + 0.5 if wrong(plan.batch, self.site, self.ctx) else out

class Backend(TorchSdpaBackend):
    def plan(self, batch):
        return SimpleNamespace(inner=super().plan(batch), batch=batch)

    def layer(self, site):
        return Layer(super().layer(site), site, self._ctx)
    {more}
"""

KNOWN = """
        used = -(-torch.from_numpy(plan.batch.seq_lens) // self.ctx.block_size)
        blocks = {b for table, n in zip(plan.batch.block_tables.tolist(), used.tolist()) for b in table[:n]}
        if not blocks <= self.known: out = out + 0.5
"""

CASES = {
    "prefill_matches_reference": {"condition": "rows == 6 and (counts == lens).all()"},
    "decode_matches_reference": {"condition": "rows == 6 and (counts == 1).all() and lens.max() < 100"},
    "mixed_batch_matches_reference": {"condition": "rows == 5 and 40 in counts"},
    "chunked_prefill_equals_whole": {"condition": "rows == 1 and counts[0] == 37"},
    "grouped_heads_match_reference": {"condition": "site.num_heads == 16"},
    "head_dims_match_reference": {"condition": "site.head_dim == 80"},
    "block_sizes_match_reference": {"condition": "ctx.block_size == 64"},
    "every_dtype_matches_reference": {"condition": "ctx.kv_dtype == torch.float16 and ctx.dtype == torch.bfloat16"},
    "sliding_window_matches_reference": {"condition": "site.window == 7"},
    "softcap_matches_reference": {"condition": "site.softcap == 1.5 and site.slopes is None"},
    "alibi_matches_reference": {"condition": "site.slopes is not None"},
    "alibi_by_root_matches_reference": {"condition": "site.rooted", "features": ("alibi_root",)},
    "chunks_match_reference": {"condition": "site.chunk == 7", "features": ("chunked",)},
    "sinks_match_reference": {"condition": "site.sinks", "features": ("sinks",)},
    "scattered_blocks_match_reference": {
        "condition": "lens.tolist() == [70, 33, 90] and (np.diff(batch.block_tables[0, :5].numpy()) < 0).any()"
    },
    "unused_content_does_not_matter": {"forward": "out = out + kv[0].float().mean()"},
    "very_different_lengths_match_reference": {"condition": "lens.max() > 600"},
    "generated_batches_match_reference": {"condition": "site.num_heads == 12"},
    "one_plan_serves_every_layer": {"condition": "site.layer >= 2"},
    "blocks_can_be_copied": {
        "write": "self.known |= set((plan.batch.slots // self.ctx.block_size).tolist())",
        "forward": KNOWN.strip(),
    },
    "writes_touch_only_their_blocks": {"write": "kv[0] += 1.0"},
    "leaves_its_inputs_alone": {"write": "k.zero_()"},
    "layout_holds_the_keys_and_values": {
        "more": """
    def kv_layout(self, site):
        from core.api import KVLayout
        inner = super().kv_layout(site)
        class Small(KVLayout):
            bytes_per_block = 1
        return Small(inner.block_shape, inner.dtype)
"""
    },
}


@pytest.fixture
def backend(make_plugin):
    def make(
        devices=("cpu",),
        dtypes=("float32", "bfloat16", "float16"),
        features=("sliding_window", "softcap", "alibi"),
        **parts,
    ):
        fields = {"condition": "False", "write": "pass", "forward": "pass", "more": "", **parts}
        source = BACKEND
        for key, value in fields.items():
            source = source.replace("{" + key + "}", value)
        manifest = MANIFEST.format(devices=set(devices), dtypes=set(dtypes), features=set(features) or "frozenset()")
        return make_plugin("core.attention_backends", {"manifest": manifest, "backend": source})

    return make


@pytest.mark.covers("ATTN-01")
@pytest.mark.parametrize("check", CASES)
def test_the_check_and_no_other_fails(backend, check):
    assert set(backend(**CASES[check]).failing("attention")) == {check}


def test_a_slow_backend_is_not_faster_than_the_reference(backend):
    from core_testing.conformance import Level

    made = backend(forward="import time; time.sleep(0.003)", dtypes=("float32",))
    report = made.report(level=Level.L3, checks=("faster_than_reference",))
    assert [one.status for one in report.outcomes] == ["failed"]
    assert "times the speed of 'torch_sdpa'" in report.outcomes[0].message


def test_a_backend_that_forgets_scales_when_it_reads_is_found(backend):
    forgets = "pass\n\n    def use_scales(self, key, value):\n        self.inner._scales = (key, 1.0)"
    made = backend(dtypes=("float32", "float8_e4m3fn"), write=forgets)
    report = made.report("attention", checks=("scales_are_applied",))
    assert [one.status for one in report.outcomes] == ["failed"]
    assert "with scales" in report.outcomes[0].message


def test_what_is_not_declared_is_not_asked(backend):
    any_of = "site.window is not None or site.softcap is not None or site.slopes is not None"
    made = backend(features=(), dtypes=("float32",), condition=any_of)
    report = made.report("attention")
    skipped = {one.check for one in report.outcomes if one.status == "skipped"}
    features = ("sliding_window", "softcap", "alibi")
    absent = {"chunks_match_reference", "sinks_match_reference", "alibi_by_root_matches_reference"}
    absent |= {"scales_are_applied", *(f"{feature}_matches_reference" for feature in features)}
    assert (report.failures, skipped) == ([], absent)


def test_a_backend_for_an_absent_device_stays_at_l0(backend):
    from core_testing.conformance import Level

    features = ("sliding_window", "softcap", "alibi", "alibi_root", "chunked", "sinks")
    report = backend(devices=("xpu",), features=features).report("manifest", "attention")
    assert {one.status for one in report.outcomes if one.level == Level.L1} == {"unavailable"}
    assert report.level == Level.L0


def test_a_reference_device_stands_in_for_an_absent_one(make_plugin, backend):
    made = backend(devices=("xpu",), dtypes=("float32",))
    (made.site / made.package / "conformance.py").write_text(
        "from core_testing.conformance import ReferenceDevice\n"
        "def samples():\n    yield ReferenceDevice('interpreter')\n"
    )
    report = made.report("attention", checks=("prefill_matches_reference", "head_dims_match_reference"))
    assert [one.status for one in report.outcomes] == ["passed", "passed"]


REPLAYED = """
import torch
from core_plugin_torch_sdpa.backend import TorchSdpaBackend

class Layer:
    def __init__(self, inner, backend):
        self.inner, self.backend = inner, backend
        self.write_kv = inner.write_kv

    def forward(self, q, kv, plan):
        out, backend = self.inner.forward(q, kv, plan), self.backend
        {forward}
        return out

class Backend(TorchSdpaBackend):
    longest, lengths = 0, torch.zeros(1)

    def layer(self, site):
        return Layer(super().layer(site), self)

    def refresh(self, plan, batch):
        self.longest, self.lengths = int(batch.seq_lens.max()), batch.on_device()[1]
        {refresh}
"""

REFRESH = "super().refresh(plan, batch)"
REPLAY_CASES = {
    "refreshed_plans_match_reference": {
        "refresh": "if not hasattr(self, 'done'): super().refresh(plan, batch)\n        self.done = True"
    },
    "fixed_plans_keep_no_number_of_a_step": {"forward": "out = out + (backend.longest - backend.lengths.max())"},
    "refresh_reads_the_device_alone": {"refresh": REFRESH + "; self.lengths.max().item()"},
    "refreshed_prompts_match_reference": {"refresh": REFRESH + "; plan.spread is None or plan.key_slots.zero_()"},
}
BOTH = {
    "refreshed_plans_match_reference": "refreshed_prompts_match_reference",
    "fixed_plans_keep_no_number_of_a_step": "fixed_prompts_keep_no_number_of_a_step",
    "refresh_reads_the_device_alone": "refresh_of_prompts_reads_the_device_alone",
}
"""Checks of steps of single tokens, and those of prompts that find the same."""


@pytest.fixture
def replayed(make_plugin):
    def make(**parts):
        source = REPLAYED
        for key, value in {"forward": "pass", "refresh": REFRESH, **parts}.items():
            source = source.replace("{" + key + "}", value)
        features = {"replayable", "replayable_prompts", "sliding_window"}
        manifest = MANIFEST.format(devices={"cpu"}, dtypes={"float32"}, features=features)
        return make_plugin("core.attention_backends", {"manifest": manifest, "backend": source})

    return make


def test_sound_fixed_plans_pass(replayed):
    report = replayed().report("replays")
    assert (report.failures, {one.status for one in report.outcomes}) == ([], {"passed"})


@pytest.mark.parametrize("check", REPLAY_CASES)
def test_fixed_plans(replayed, check):
    due = {check}
    if check.startswith("refreshed"):  # a plan that is not refreshed is found both ways
        due.add(check.replace("refreshed", "fixed").replace("match_reference", "keep_no_number_of_a_step"))
    due |= {BOTH[one] for one in due if one in BOTH}
    assert set(replayed(**REPLAY_CASES[check]).failing("replays")) == due


ROTATING = """
import torch
from core.ops.rotary import rotary, rotary_interleaved
from core_plugin_torch_sdpa.backend import TorchSdpaBackend

class Layer:
    def __init__(self, inner):
        self.inner, self.forward, self.write_kv = inner, inner.forward, inner.write_kv

    def write_rotated(self, q, k, v, rotation, kv, plan):
        turn = rotary_interleaved if rotation.interleaved else rotary
        places, table = rotation.positions, rotation.table
        {before}
        turned, keys = turn(places, q, k, table)
        {after}
        self.inner.write_kv(keys, v, kv, plan)
        return turned

class Backend(TorchSdpaBackend):
    def layer(self, site):
        return Layer(super().layer(site))
"""

ROTATING_CASES = {
    "stores_rotate_as_the_reference": [
        {"before": "turn = rotary"},
        {"before": "places = places - places.min()"},
        {"after": "turned = q"},
        {"after": "keys = k"},
        {"after": "k.copy_(keys)"},
    ],
    "rotated_sizes_match_reference": [{"before": "turn = rotary if k.shape[1] < q.shape[1] else rotary_interleaved"}],
}


@pytest.fixture
def rotating(make_plugin):
    def make(before="pass", after="pass"):
        source = ROTATING.replace("{before}", before).replace("{after}", after)
        manifest = MANIFEST.format(devices={"cpu"}, dtypes={"float32", "bfloat16"}, features={"rotary"})
        return make_plugin("core.attention_backends", {"manifest": manifest, "backend": source})

    return make


def test_sound_rotating_stores_pass(rotating):
    report = rotating().report("rotations")
    assert (report.failures, {one.status for one in report.outcomes}) == ([], {"passed"})


@pytest.mark.parametrize(("check", "parts"), [(check, one) for check, many in ROTATING_CASES.items() for one in many])
def test_rotating_stores(rotating, check, parts):
    found = rotating(**parts).failing("rotations")
    # What is wrong for every size is found by both.
    assert check in found and (check.startswith("stores") or set(found) <= set(ROTATING_CASES))


def test_a_backend_that_only_says_that_its_plans_stay_is_refused():
    from core.api import PluginError
    from core.plugins.handed import REPLAYABLE, Handed

    with pytest.raises(PluginError, match=r"CORE-P160 .*does not fit Replayable: it lacks fixed_plan\(shape\)"):
        Handed("attention backend 'acme'").fit("the feature `replayable`", object(), REPLAYABLE)


LATENT = """
from types import SimpleNamespace
from core_plugin_torch_sdpa.backend import TorchSdpaBackend
import numpy as np
import torch

def wrong(batch, site, ctx):
    counts = np.diff(batch.query_starts)
    lens = batch.seq_lens
    return {condition}

class Layer:
    def __init__(self, inner, site, ctx):
        self.inner, self.site, self.ctx = inner, site, ctx
        self.known, self.uses = set(), 0

    def use_up(self, key, value):
        {use_up}

    def use_scales(self, key, value):
        {use_scales}

    def write(self, latent, rope_key, kv, plan):
        self.inner.write(latent, rope_key, kv, plan.inner)
        {write}

    def forward(self, q, q_rope, kv, plan):
        out = self.inner.forward(q, q_rope, kv, plan.inner)
        {forward}
        return out + 0.5 if wrong(plan.batch, self.site, self.ctx) else out

class Backend(TorchSdpaBackend):
    def plan(self, batch):
        return SimpleNamespace(inner=super().plan(batch), batch=batch)

    def latent(self, site):
        return Layer(super().latent(site), site, self._ctx)
    {more}
"""

LATENT_CASES = {
    "latent_layers_match_reference": {"condition": "len(lens) == 4 and counts.max() == 100 and site.layer == 1"},
    "latent_sizes_match_reference": {"condition": "site.latent_dim == 512"},
    "latent_dtypes_match_reference": {"condition": "ctx.dtype == torch.bfloat16 and ctx.kv_dtype == torch.float16"},
    "latent_scales_are_applied": {"use_scales": "pass"},
    "latent_pieces_equal_the_whole": {"condition": "lens.tolist() == [150] and counts.tolist() == [42]"},
    "latent_blocks_can_be_copied": {
        "write": "self.known |= set((plan.batch.slots // self.ctx.block_size).tolist())",
        "forward": KNOWN.strip(),
    },
    "latent_layers_take_other_weights": {
        "use_up": "self.uses += 1; self.uses > 1 or self.inner.use_up(key, value)",
    },
    "latent_layout_holds_a_token": {
        "more": """
    def latent_layout(self, site):
        from core.api import KVLayout
        inner = super().latent_layout(site)
        class Small(KVLayout):
            bytes_per_block = 1
        return Small(inner.block_shape, inner.dtype)
"""
    },
}


@pytest.fixture
def latent(make_plugin):
    def make(**parts):
        usual = {"condition": "False", "write": "pass", "forward": "pass", "more": ""}
        usual |= {name: f"self.inner.{name}(key, value)" for name in ("use_up", "use_scales")}
        source = LATENT
        for key, value in {**usual, **parts}.items():
            source = source.replace("{" + key + "}", value)
        dtypes = {"float32", "bfloat16", "float16"}
        manifest = MANIFEST.replace("kv_dtypes={dtypes}", "kv_dtypes={kv_dtypes}").format(
            devices={"cpu"}, dtypes=dtypes, kv_dtypes=dtypes | {"float8_e4m3fn"}, features={"latent"}
        )
        return make_plugin("core.attention_backends", {"manifest": manifest, "backend": source})

    return make


def test_a_sound_latent_backend_passes(latent):
    report = latent().report("latents")
    assert (report.failures, {one.status for one in report.outcomes}) == ([], {"passed"})


@pytest.mark.covers("ATTN-08")
@pytest.mark.parametrize("check", LATENT_CASES)
def test_the_check_of_latent_layers_and_no_other_fails(latent, check):
    assert set(latent(**LATENT_CASES[check]).failing("latents")) == {check}


@pytest.mark.covers("ATTN-08")
@pytest.mark.parametrize("forgets", ["write", "forward"])
def test_latent_layers_that_forget_scales_when_they_write_or_read_are_found(latent, forgets):
    stages = ("write", "forward") if forgets == "forward" else ("forward", "write")
    after = dict(zip(stages, ("self.inner._scale = 1.0", "self.inner._scale = self.kept")))
    takes = "self.kept = float(key); self.inner.use_scales(key, value)"
    report = latent(use_scales=takes, **after).report("latents", checks=("latent_scales_are_applied",))
    assert [one.status for one in report.outcomes] == ["failed"]
    assert "with a scale" in report.outcomes[0].message


def test_a_backend_without_latent_layers_is_not_asked_for_them(backend):
    assert {one.status for one in backend().report("latents").outcomes} == {"skipped"}
