"""Each check of platforms, quantization methods and models finds the plugin that is wrong in its way."""

from __future__ import annotations

import re

import pytest

PLATFORM_MANIFEST = """
from core.api import PlatformSpec

SPEC = PlatformSpec(
    name="broken", impl="PKG.platform:Platform", api=2, summary="s", device_type="cpu", probe="PKG.probe:probe",
    dtypes=("float32",),
)
"""

PROBE = """
from core.api import ProbeResult

def probe():
    return ProbeResult(available=True, reason="here")
"""

PLATFORM = """
import torch
from core.api import MemorySnapshot, EngineError
from core_plugin_cpu.platform import CPUPlatform
from core_plugin_cpu.stream import ThreadStream

class Platform(CPUPlatform):
    pass
"""


@pytest.fixture
def platform(make_plugin):
    def make(body: str = "pass", probe: str = PROBE, before: str = ""):
        source = f"{PLATFORM}\n{before}\n\nclass Platform(Platform):\n    {body}\n"
        return make_plugin("core.platforms", {"manifest": PLATFORM_MANIFEST, "probe": probe, "platform": source})

    return make


def test_a_sound_platform_passes(platform):
    assert platform().failing("platforms") == {}


@pytest.mark.covers("PLAT-01")
@pytest.mark.parametrize(
    ("checks", "probe"),
    [
        ({"probe_never_raises"}, "def probe():\n    open('/proc/self/status').read()\n    return R"),
        ({"probe_is_quick_and_light"}, "def probe():\n    import time; time.sleep(1.1)\n    return R"),
        ({"probe_is_quick_and_light"}, "def probe():\n    import sys; sys.modules['torch'] = sys\n    return R"),
        (
            {"probe_result_is_data"},
            "import itertools\nC = itertools.count()\n"
            "def probe():\n    return ProbeResult(available=True, reason=str(next(C)))",
        ),
    ],
    ids=["raises", "slow", "heavy", "changes"],
)
def test_probes(platform, checks, probe):
    source = "from core.api import ProbeResult\nR = ProbeResult(available=True)\n" + probe
    made = platform(probe=source)
    names = ("probe_never_raises", "probe_is_quick_and_light", "probe_result_is_data")
    if checks != {"probe_result_is_data"}:
        names = names[:2]  # the third calls the probe in this process
    assert {one.check for one in made.report(checks=names).failures} == checks


def test_a_probe_that_raises_anyway_is_caught(platform):
    made = platform(probe="def probe():\n    raise OSError('no driver')")
    (failure,) = made.report(checks=("probe_never_raises",)).failures
    assert "no driver" in failure.message


CROSSED = """
from concurrent.futures import ThreadPoolExecutor
class Crossed:
    def __init__(self): self.pool = ThreadPoolExecutor(3); self.closed = False
    def submit(self, work):
        if self.closed: raise EngineError("CORE-X000", "closed")
        return self.pool.submit(work)
    def close(self): self.closed = True; self.pool.shutdown()
"""

EAGER = """
from concurrent.futures import Future
class Eager(ThreadStream):
    def submit(self, work):
        pending = super().submit(work)
        pending.exception()
        return pending
"""

SWALLOWING = """
class Swallowing(ThreadStream):
    def submit(self, work):
        def quiet():
            try: return work()
            except KeyError: return None
        return super().submit(quiet)
"""

OPEN_FOR_EVER = """
class OpenForEver(ThreadStream):
    def close(self): pass
"""


def test_memory_that_sees_no_allocation_is_caught(platform, monkeypatch):
    from core.plugins.catalog import Catalogue
    from core_testing.conformance.areas import platforms
    from core_testing.conformance.kit import subjects
    from core_testing.conformance.outcome import Failed
    from core_testing.conformance.subject import Shared

    made = platform("def memory(self): return MemorySnapshot(100 * 2**20, 80 * 2**20)")
    (subject,) = subjects(made.dist, Shared(), Catalogue.scan())
    # The check is for accelerators; the CPU plays one here.
    monkeypatch.setattr(platforms, "device_of", lambda subject: None)
    with pytest.raises(Failed, match="0 seen"):
        platforms.memory_sees_allocations(subject.on("accelerator"))


GRAPHS = """
from core.api import GraphFacet

class Graphs(GraphFacet):
    def key(self, shape): return shape.num_tokens
    def capture(self, forward, step):
        self.forward, self.captured = forward, step
        return self
    def replay(self, step): return self.forward({replayed})
"""

GROUP = """
class Group:
    rank, world_size, alignment = 0, 1, 1
    def all_reduce(self, tensor): return tensor {reduced}
    def all_gather(self, tensor, dim): return tensor
    def all_to_all(self, tensor, splits): return tensor
    def broadcast(self, tensor, source): return tensor
    def barrier(self): pass
"""

FACETS = """def __init__(self):
        super().__init__()
        self.graphs, self.collectives = Graphs(), Group()
"""


def test_sound_facets_pass(platform):
    before = GRAPHS.replace("{replayed}", "step") + GROUP.replace("{reduced}", "")
    report = platform(FACETS, before=before).report("platforms")
    skipped = [one.check for one in report.outcomes if one.status == "skipped"]
    apart = ["queue_keeps_order", "peak_is_counted_where_memory_is_apart"]
    assert (report.failures, skipped) == ([], ["memory_sees_allocations", *apart])


@pytest.mark.parametrize(
    ("check", "replayed", "reduced"),
    [
        ("graphs_replay_what_was_captured", "self.captured", ""),
        ("collectives_of_one_rank_change_nothing", "step", "* 2"),
    ],
)
def test_facets(platform, check, replayed, reduced):
    before = GRAPHS.replace("{replayed}", replayed) + GROUP.replace("{reduced}", reduced)
    assert set(platform(FACETS, before=before).failing("platforms")) == {check}


@pytest.mark.parametrize(
    ("check", "body", "before"),
    [
        ("opens_its_device", "def describe(self): return {'threads': 1}", ""),
        ("opens_its_device", "def open(self, **named): super().open(**named); return 'cpu'", ""),
        (
            "open_seeds_the_generators",
            "def open(self, *, threads, seed, index): return super().open(threads=threads, seed=5)",
            "",
        ),
        ("memory_is_plausible", "def memory(self): return MemorySnapshot(100, 101)", ""),
        ("stream_keeps_order", "def stream(self): return Crossed()", CROSSED),
        ("submit_does_not_wait", "def stream(self): return Eager(1)", EAGER),
        ("stream_delivers_exceptions", "def stream(self): return Swallowing(1)", SWALLOWING),
        ("closes_for_good", "def stream(self): return OpenForEver(1)", OPEN_FOR_EVER),
    ],
)
def test_platforms(platform, check, body, before):
    assert set(platform(body, before=before).failing("platforms")) == {check}


DEVICE = """
from core_testing.fakedevice.platform import FakePlatform
from core_testing.fakedevice.queue import LateQueue

class Platform(FakePlatform):
    pass
"""

FORGETFUL = """
class Forgetful(LateQueue):
    def fetch(self, tensors):
        from core_testing.fakedevice.queue import Mark
        return Mark(self, 0, [tensor.numpy() for tensor in tensors])
"""
"""What it fetches is read without waiting for it."""

FROZEN = """
from core.api import GraphFacet

class Frozen(GraphFacet):
    fixed = True
    def key(self, shape): return shape
    def capture(self, forward, step):
        self.out = forward(step).clone()
        return self
    def replay(self, step): return self.out
"""
"""Its graphs keep the numbers that they were captured with."""


def test_a_device_of_its_own_passes(platform):
    report = platform(before=DEVICE).report("platforms")
    skipped = [one.check for one in report.outcomes if one.status == "skipped"]
    assert (report.failures, skipped) == (
        [],
        ["memory_sees_allocations", "collectives_of_one_rank_change_nothing"],
    )


@pytest.mark.parametrize(
    ("check", "body", "before"),
    [
        ("queue_keeps_order", "def queue(self): return Forgetful()", "FORGETFUL"),
        ("peak_is_counted_where_memory_is_apart", "def mark_memory(self): pass", ""),
        ("graphs_replay_what_was_captured", "def __init__(self): super().__init__(); self.graphs = Frozen()", "FROZEN"),
    ],
)
def test_devices_of_their_own(platform, check, body, before):
    made = platform(body, before=DEVICE + {"FORGETFUL": FORGETFUL, "FROZEN": FROZEN, "": ""}[before])
    assert set(made.failing("platforms")) == {check}


QUANT_MANIFEST = """
from core.api import QuantSpec

SPEC = QuantSpec(name="broken", impl="PKG.scheme:Scheme", api=2, summary="s", methods=frozenset({METHODS}), {MORE})
"""

# A sound format that is changed at one point; `times` counts how often a part was read.
SCHEME = """
import torch
from core.api import PLAIN, Part, Stored, WeightForm

class Scheme:
    def __init__(self, ctx):
        self.ctx, self.times, self.firsts = ctx, 0, {}
        {scheme}
    def form(self, site, part):
        form = PLAIN
        {form}
        return form
    def stored(self, site, part):
        return [Stored("weight")]
    def read(self, site, part, tensors):
        self.times += 1
        tensor = tensors["weight"]
        weight = tensor.dense(self.ctx.dtype)
        {read}
        return Part(PLAIN, weight)
"""

GPTQ = """
from core_plugin_gptq.scheme import GPTQFormat

class Scheme(GPTQFormat):
    def stored(self, site, part):
        return [one for one in super().stored(site, part) if not (one.suffix == "g_idx" and one.optional)]
"""
"""It names the order of inputs only where it is needed."""

REFINE = """
from core.api import Verdict

def refine(request, probe):
    kinds = request.checkpoint["types"]
    {refine}
    return Verdict.of(None if all(type(count) is int for count in kinds.values()) else "types that nobody counts")
"""
"""A sound one for a method that counts the types of a GGUF file."""

COUNTS = "assert all(type(count) is int for count in ctx.checkpoint['types'].values())"

OPENED = "parts_open_to_what_is_meant"
QUANT_CASES = {
    "linear_equals_dequantized": (
        {"read": "if site.prefix.endswith('bias_proj'): weight = weight * 1.1"},
        {OPENED},
    ),
    "merged_parts_equal_separate_parts": ({"read": "if part == 'k_proj': weight = weight.flip(0)"}, {OPENED}),
    "embedding_equals_dequantized": (
        {"read": "if site.kind == 'embedding': weight = weight * 1.2"},
        {OPENED, "lm_head_equals_dequantized"},
    ),
    "lm_head_equals_dequantized": ({"read": "if site.kind == 'lm_head': weight = weight.roll(1, 0)"}, {OPENED}),
    "loading_again_gives_the_same": (
        {"read": "if self.times > len(site.parts): weight = weight * (1 + 1e-3)"},
        {OPENED},
    ),
    "other_weights_replace_the_first": (
        {"read": "weight = self.firsts.setdefault((site.prefix, part), weight)"},
        set(),
    ),
    "parts_have_the_form_that_is_told": ({"form": "form = WeightForm(codes='int', bits=8)"}, set()),
    OPENED: ({"read": "weight = weight * (1 + 1e-4)"}, set()),
    "reading_again_gives_the_same": (
        {"read": "weight[0, 0] *= 1 + 1e-6 * (self.times % 2)"},
        {"loading_again_gives_the_same"},
    ),
    "reading_takes_little_memory": ({"read": "weight = (weight * 2 - weight * 1).clone()"}, set()),
}
"""Check -> what is wrong with the format, and which other checks see that too."""


@pytest.fixture
def scheme(make_plugin):
    def make(methods: str = '{"none"}', **parts: str):
        source = parts.get("source", SCHEME)
        for key in ("scheme", "form", "read"):
            source = source.replace("{" + key + "}", parts.get(key, "pass"))
        refines = "refine" in parts
        manifest = QUANT_MANIFEST.replace("{METHODS}", methods)
        manifest = manifest.replace("{MORE}", "refine='PKG.check:refine'" if refines else "")
        modules = {"manifest": manifest, "scheme": source}
        if refines:
            modules["check"] = parts.get("head", "") + REFINE.replace("{refine}", parts["refine"])
        return make_plugin("core.quantization", modules)

    return make


@pytest.mark.parametrize("check", QUANT_CASES)
def test_quantization(scheme, check):
    parts, others = QUANT_CASES[check]
    assert set(scheme(**parts).failing("quantization")) == {check, *others}


def test_a_sound_format_passes(scheme):
    assert scheme().failing("quantization") == {}


def test_a_tensor_that_is_not_named_is_caught(scheme):
    failing = scheme('{"gptq"}', source=GPTQ).failing("quantization")
    assert set(failing) == {"every_tensor_is_named", "what_it_cannot_read_is_refused_when_chosen"}  # it has no refine
    assert "does not name g_idx" in failing["every_tensor_is_named"]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({}, "types.* unknown: refine lets it pass, but the implementation refuses it"),
        ({"refine": "return Verdict()"}, "refine lets it pass"),
        ({"refine": "pass"}, None),
    ],
)
def test_what_a_method_refuses_it_refuses_when_it_is_chosen(scheme, parts, said):
    failing = scheme('{"gguf"}', scheme=COUNTS, **parts).failing("quantization")
    assert set(failing) == ({"what_it_cannot_read_is_refused_when_chosen"} if said else set())
    assert said is None or re.search(said, failing["what_it_cannot_read_is_refused_when_chosen"])


def test_a_method_that_refuses_its_own_samples_is_caught(scheme):
    assert set(scheme(refine="return Verdict.of('no')").failing("quantization")) == {"samples_are_taken"}


def test_a_refine_that_asks_for_torch_is_caught(scheme):
    made = scheme('{"gguf"}', refine="pass", head="import torch")
    (failure,) = made.report(checks=("runs_without_torch_where_core_does",)).failures
    assert "asks for torch" in failure.message


def test_a_method_is_checked_with_the_samples_of_its_formats_loader(scheme):
    sound = scheme('{"gguf"}')
    assert sound.failing("quantization") == {}
    wrong = scheme('{"gguf"}', read="if part == 'up_proj': weight = weight.flip(0)")
    assert set(wrong.failing("quantization")) == {"merged_parts_equal_separate_parts", OPENED}


def test_a_method_without_samples_stays_at_l0(scheme):
    report = scheme('{"no-such-method"}').report("manifest", "quantization")
    states = {one.status for one in report.outcomes if one.level.name == "L1"}
    assert states == {"unavailable"} and report.level.name == "L0"
    assert "CheckpointSample" in report.outcomes[-1].message


MODEL_MANIFEST = """
from core.api import ModelSpec

SPEC = ModelSpec(
    name="broken", impl="PKG.model:Model", api=2, summary="s", architectures={ARCHITECTURES}, shape="PKG.model:shape"
)
"""

MODEL = """
import torch
from core.api import WeightRules
from core_plugin_llama.config import shape as right_shape
from core_plugin_llama.model import CausalLM

def shape(config):
    found = right_shape(config)
    {shape}
    return found

class Model(CausalLM):
    def __init__(self, config, build):
        {init}
        super().__init__(config, build)

    @classmethod
    def weight_rules(cls, config):
        rules = super().weight_rules(config)
        {rules}
        return rules

    def forward(self, step):
        batch, positions = step.plan, step.positions
        counts = [b - a for a, b in zip(batch.query_starts.tolist(), batch.query_starts.tolist()[1:])]
        hidden = super().forward(step)
        {forward}
        return hidden
"""

MODEL_CASES = {
    "logits_equal_transformers": {"forward": "hidden = hidden.roll(1, -1)"},
    "chunked_prefill_equals_whole": {"forward": "if counts == [11]: hidden = hidden + 1"},
    "batched_rows_are_independent": {"forward": "if len(counts) > 1: hidden = hidden + 1"},
    "prefix_blocks_can_be_shared": {"forward": "if counts == [16]: hidden = hidden + int(positions[0] == 8)"},
    "ranks_share_the_model": {"forward": "hidden = hidden + (self.passes[0][0][1][0].body.query_heads == 2)"},
    "missing_and_extra_tensors_are_errors": {
        "rules": "rules = WeightRules(skip=('*no_such_projection*', *rules.skip))"
    },
    "shape_agrees_with_the_config": {
        "shape": "found = found.model_copy(update={'head_dim': 3, 'features': frozenset()})"
    },
    "rotary_scaling_makes_the_context": {
        "shape": "found = found.model_copy(update={'max_positions': config['max_position_embeddings']})"
    },
}


@pytest.fixture
def model(make_plugin, monkeypatch):
    from core_testing.conformance.tools import decoder

    few = {name: decoder.FAMILIES[name] for name in ("qwen2_window", "qwen3_window")}
    monkeypatch.setattr(decoder, "FAMILIES", few)

    def make(architectures=("Qwen2ForCausalLM",), **parts: str):
        source = MODEL
        for key in ("shape", "init", "rules", "forward"):
            source = source.replace("{" + key + "}", parts.get(key, "pass"))
        manifest = MODEL_MANIFEST.replace("{ARCHITECTURES}", repr(architectures))
        return make_plugin("core.models", {"manifest": manifest, "model": source})

    return make


@pytest.mark.parametrize("check", MODEL_CASES)
def test_models(model, check):
    assert set(model(**MODEL_CASES[check]).failing("models")) == {check}


def test_a_rotary_embedding_that_the_shape_does_not_name_is_found(model):
    failing = model(shape="found = found.model_copy(update={'ropes': ()})").failing("models")
    assert set(failing) == {"shape_agrees_with_the_config"}
    assert "its shape's ropes do not name" in failing["shape_agrees_with_the_config"]


def test_a_model_that_leaves_a_tensor_out_is_caught(model):
    # Its norm is made of nothing, so that no place stays empty, and the checkpoint's norm is skipped.
    rules = "rules = WeightRules(skip=('model.norm.weight', *rules.skip))"
    init = "build = type('B', (), {'__getattr__': lambda self, name: getattr(inner, name), 'rms_norm': norm})()"
    helper = (
        "inner = build\n"
        "        def norm(self, size, eps, prefix, **how):\n"
        "            if prefix != 'model.norm': return inner.rms_norm(size, eps, prefix, **how)\n"
        "            class Plain:\n"
        "                def add(self, x, y):\n"
        "                    s = x + y\n"
        "                    return s * torch.rsqrt(s.pow(2).mean(-1, keepdim=True) + eps), s\n"
        "            return Plain()\n"
        f"        {init}"
    )
    failing = model(rules=rules, init=helper).failing("models")
    assert set(failing) == {"every_tensor_is_used_once", "logits_equal_transformers"}
    assert "leave out model.norm.weight" in failing["every_tensor_is_used_once"]


def test_a_model_that_ranks_do_not_divide_is_found(model):
    undivided = (
        "inner = build\n"
        "        class Whole:\n"
        "            def __getattr__(self, name): return getattr(inner, name)\n"
        "            def heads(self, heads, kv_heads): return Heads(heads, kv_heads)\n"
        "            def linear(self, *sizes, shard=None, **rest): return inner.linear(*sizes, **rest)\n"
        "            def merged_linear(self, *sizes, shard=None, **rest): return inner.merged_linear(*sizes, **rest)\n"
        "        from core.api.layers import Heads\n"
        "        build = Whole()"
    )
    failing = model(init=undivided).failing("models")
    assert set(failing) == {"ranks_share_the_model"}
    assert "its layers have [4, 4, 4] of [4, 4, 4] heads" in failing["ranks_share_the_model"]


def test_an_architecture_without_a_tiny_configuration_stays_at_l0(model):
    report = model(("Qwen2ForCausalLM", "AcmeForCausalLM")).report(checks=("every_architecture_can_be_checked",))
    assert [one.status for one in report.outcomes] == ["unavailable"]
    assert "AcmeForCausalLM" in report.outcomes[0].message


def test_a_plugins_own_tiny_configuration_is_used(model):
    made = model(("Qwen3ForCausalLM",), forward="if True: hidden = hidden * 0.5")
    (made.site / made.package / "conformance.py").write_text(
        "from core_testing.conformance import ModelSample\n"
        "def samples():\n    yield ModelSample('mine', 'Qwen3ForCausalLM', 'qwen3', {'head_dim': 24})\n"
    )
    (failure,) = made.report(checks=("logits_equal_transformers",)).failures
    assert "mine: a prompt" in failure.message
