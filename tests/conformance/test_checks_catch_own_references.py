"""What the kit cannot know is compared with a reference of the plugin's own: who keeps it passes, others fail."""

from __future__ import annotations

import pytest

from core_testing.conformance import Level

# -- weights that are rounded while they load --------------------------------------------------------------------------

ROUNDING_MANIFEST = """
from core.api import QuantSpec

SPEC = QuantSpec(
    name="broken", impl="PKG.scheme:Scheme", api=2, summary="s", methods=frozenset({"none"}), on_request=True,
)
"""

ROUNDING = """
import torch
from core.api import PLAIN, Part, Stored

def rounded(weight):
    scale = weight.abs().amax(1, keepdim=True).clamp_min(1e-12) / {steps}
    return (weight / scale).round() * scale

class Scheme:
    def __init__(self, ctx): self.dtype = ctx.dtype
    def form(self, site, part): return PLAIN
    def stored(self, site, part): return [Stored("weight")]
    def read(self, site, part, tensors):
        weight = tensors["weight"].dense(torch.float32)
        values = torch.empty(weight.shape, dtype=self.dtype)
        for some in range(0, len(weight), 16):
            values[some : some + 16] = rounded(weight[some : some + 16])
        return Part(PLAIN, values)
"""

ROUNDING_SAMPLES = """
from core_testing.conformance import RoundingSample

def rounded(site, weight):
    scale = weight.abs().amax(1, keepdim=True) / 7
    return (weight / scale).round() * scale

def samples():
    yield RoundingSample("rows of 4 bits", {given})
"""


@pytest.fixture
def rounding(make_plugin):
    def make(given: str | None, steps: int = 7):
        modules = {"manifest": ROUNDING_MANIFEST, "scheme": ROUNDING.replace("{steps}", str(steps))}
        if given is not None:
            modules["conformance"] = ROUNDING_SAMPLES.replace("{given}", given)
        return make_plugin("core.quantization", modules)

    return make


@pytest.mark.covers("PRAC-01")
@pytest.mark.parametrize("given", ["rounded, tolerance=0.01", "tolerance=0.2"])
def test_a_method_that_rounds_as_it_says_passes(rounding, given):
    report = rounding(given).report("quantization", "spawn")
    assert (report.failures, report.level) == ([], Level.L1)


@pytest.mark.parametrize(("given", "steps"), [("rounded", 6), ("rounded, tolerance=0.01", 3), ("tolerance=0.05", 7)])
def test_a_method_that_rounds_in_another_way_or_more_coarsely_fails(rounding, given, steps):
    failing = rounding(given, steps).failing("quantization")
    assert {"linear_equals_dequantized", "embedding_equals_dequantized", "lm_head_equals_dequantized"} <= set(failing)
    assert "relative error" in failing["linear_equals_dequantized"]


def test_a_method_that_rounds_and_says_nothing_of_it_stays_at_l0(rounding):
    report = rounding(None).report("manifest", "quantization")
    assert report.level == Level.L0 and report.failures == []
    assert "it rounds weights while they load (`on_request`): add a RoundingSample" in report.not_run[0].because


@pytest.mark.parametrize("given", ["", "tolerance=0.9"])
def test_a_sample_that_allows_everything_is_refused(rounding, given):
    failing = rounding(given).failing("quantization")
    assert "'rows of 4 bits' has no reference, and a tolerance of" in failing["linear_equals_dequantized"]


# -- a form of quantization whose layers are no products with a weight -------------------------------------------------

FORM_MANIFEST = """
from core.api import QuantSpec

SPEC = QuantSpec(name="broken", impl="PKG.scheme:Scheme", api=2, summary="s", methods=frozenset({"acme-rounded"}))
"""

# A layer multiplies a plain weight with its input rounded to 8 bits: nothing that a weight alone could say.
FORM = """
import torch
from core.api import Part, Stored, WeightForm

class Scheme:
    def __init__(self, ctx): self.dtype = ctx.dtype
    def form(self, site, part): return WeightForm(activations="{activations}")
    def stored(self, site, part): return [Stored("weight")]
    def read(self, site, part, tensors):
        return Part(self.form(site, part), tensors["weight"].dense(self.dtype))
"""

FORM_SAMPLES = """
import json
import torch
from safetensors.torch import save_file
from core.api import LayerSite
from core_testing.conformance import CheckpointSample

SITES = (LayerSite("linear", "model.layers.0.mlp.down_proj", 32, (("", 16),)),)

def weights():
    rng = torch.Generator().manual_seed(3)
    return {"model.layers.0.mlp.down_proj.weight": torch.randn(16, 32, generator=rng)}

def write(folder):
    save_file(weights(), folder / "model.safetensors")
    about = {"quant_method": "acme-rounded"}
    config = {"architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48}
    config |= {"num_hidden_layers": 1, "num_attention_heads": 2, "quantization_config": about}
    (folder / "config.json").write_text(json.dumps(config))
    return folder

def reference(site, x):
    step = x.abs().amax(1, keepdim=True) / 127
    return (x / step).round() * step @ weights()[site.prefix + ".weight"].T

def samples():
    yield CheckpointSample("rounded inputs", write, layers=SITES, apply_tolerance=0.0, {given})
"""


@pytest.mark.parametrize(
    ("given", "activations", "fails"),
    [
        ("reference=reference", "int8:token", set()),
        ("reference=reference", "as_is", {"linear_equals_dequantized"}),
        ("values=weights", "int8:token", {"linear_equals_dequantized"}),
        ("values=weights", "as_is", set()),
    ],
)
def test_layers_of_a_form_are_held_to_the_samples_reference(make_plugin, given, activations, fails):
    modules = {
        "manifest": FORM_MANIFEST,
        "scheme": FORM.replace("{activations}", activations),
        "conformance": FORM_SAMPLES.replace("{given}", given),
    }
    assert set(make_plugin("core.quantization", modules).failing("quantization")) == fails


# -- a logits processor ------------------------------------------------------------------------------------------------

LOGITS_MANIFEST = """
from core.api import LogitsSpec

SPEC = LogitsSpec(name="broken", impl="PKG.processor:Processor", api=1, summary="s", args=("push",))
"""

PROCESSOR = """
class Processor:
    is_argmax_invariant = False

    def __init__(self, ctx): self.ctx, self.rows = ctx, {}
    def admit(self, row, params, prompt):
        push = (params.extra_args or {}).get("push")
        if not isinstance(push, (int, float)) or push != push: return False
        self.rows[row] = (min(max(float(push), -9.0), 9.0), len(prompt))
        return True
    def release(self, row): del self.rows[row]
    def apply(self, logits, rows, output_counts):
        for line, row, count in zip(logits, rows.tolist(), output_counts.tolist(), strict=True):
            push, length = self.rows[row]
            line[self.ctx.tokens[row, {first}:length + count].long().unique()] += {push}
"""

LOGITS_SAMPLES = """
from core_testing.conformance import LogitsSample

def reference(logits, prompt, output):
    for token in set(prompt) | set(output):
        logits[token] += 2.5
    return logits

def samples():
    yield LogitsSample("seen tokens", {"push": 2.5}, reference={reference})
"""


@pytest.mark.parametrize(
    ("first", "push", "reference", "fails"),
    [
        ("0", "push", "reference", False),
        ("0", "-push", "reference", True),
        ("length", "push", "reference", True),
        ("0", "-push", "None", False),
        ("0", "push", "lambda logits, prompt, output: logits[:5]", True),
    ],
)
def test_logits_are_held_to_the_samples_reference(make_plugin, first, push, reference, fails):
    modules = {
        "manifest": LOGITS_MANIFEST,
        "processor": PROCESSOR.replace("{first}", first).replace("{push}", push),
        "conformance": LOGITS_SAMPLES.replace("{reference}", reference),
    }
    failing = make_plugin("core.logits", modules).failing("logits")
    assert set(failing) == ({"logits_equal_the_samples_reference"} if fails else set())
    assert not fails or "'seen tokens'" in failing["logits_equal_the_samples_reference"]


# -- a feature of attention --------------------------------------------------------------------------------------------

ATTENTION_MANIFEST = """
from core.api import AttentionSpec

SPEC = AttentionSpec(
    name="broken", impl="PKG.backend:Backend", api=2, summary="s", devices={"cpu"}, dtypes={"float32"},
    kv_dtypes={"float32"}, features={"acme_slopes", "sliding_window"},
)
"""

# Scores fall with the distance, by a slope of each head, which the site says in a field of its own.
ATTENTION = """
from dataclasses import dataclass
import torch
from core.api import KVLayout
from core.api.attention import AttentionSite

@dataclass(frozen=True)
class Sloped(AttentionSite):
    slope: float = 0.0

class Backend:
    def __init__(self, ctx): self.ctx = ctx
    def kv_layout(self, site):
        return KVLayout((2, self.ctx.block_size, site.num_kv_heads, site.head_dim), self.ctx.kv_dtype)
    def plan(self, batch): return batch
    def layer(self, site): return Layer(site, self.ctx.block_size)

class Layer:
    def __init__(self, site, block_size): self.site, self.block_size, self.sharper = site, block_size, 1.0
    def write_kv(self, k, v, kv, plan):
        block, offset = plan.slots // self.block_size, plan.slots % self.block_size
        kv[block, 0, offset], kv[block, 1, offset] = k, v
    def forward(self, q, kv, plan):
        out = q.new_empty(q.shape)
        for row, length in enumerate(plan.seq_lens.tolist()):
            begin, end = plan.query_starts[row : row + 2].tolist()
            blocks = plan.block_tables[row, : -(-length // self.block_size)].long()
            k, v = kv[blocks].transpose(0, 1).flatten(1, 2)[:, :length]
            out[begin:end] = attend(q[begin:end], k, v, self.site, self.sharper)
        return out.flatten(1)

def attend(q, k, v, site, sharper):
    group = site.num_heads // site.num_kv_heads
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    keys = torch.arange(len(k))
    apart = (torch.arange(len(k) - len(q), len(k))[:, None] - keys[None, :]).float()
    slopes = {slopes}
    scores = torch.einsum("qhd,khd->hqk", q, k) * site.scale * sharper - slopes[:, None, None] * apart
    hidden = (apart < 0) | (apart >= (site.window or 10**9))
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v)
"""
SLOPES = "getattr(site, 'slope', 0.0) * torch.arange(1, site.num_heads + 1)"

ATTENTION_SAMPLES = """
from dataclasses import asdict
import torch
from core_testing.conformance import AttentionSample
from PKG.backend import Sloped

def reference(q, k, v, site):
    first, found = len(k) - len(q), []
    for place, query in enumerate(q):
        heads = []
        for head in range(site.num_heads):
            kv_head = head * site.num_kv_heads // site.num_heads
            begin = max(0, first + place + 1 - (site.window or 10**9))
            keys, values = (one[begin : first + place + 1, kv_head] for one in (k, v))
            apart = torch.arange(len(keys) - 1, -1, -1)
            scores = keys @ query[head] * site.scale * 2 - site.slope * (head + 1) * apart
            heads.append(scores.softmax(0) @ values)
        found.append(torch.stack(heads))
    return torch.stack(found)

def site(plain):
    sizes = plain.num_heads, plain.num_kv_heads, plain.head_dim
    return Sloped(plain.layer, *sizes, plain.scale, plain.window, slope=0.1)

def prepare(layer):
    layer.sharper = 2.0

def samples():
    yield AttentionSample("slopes", "acme_slopes", reference, site=site, prepare=prepare)
"""


@pytest.fixture
def attention(make_plugin):
    def make(slopes: str = SLOPES, samples: str = ATTENTION_SAMPLES):
        modules = {"manifest": ATTENTION_MANIFEST, "backend": ATTENTION.replace("{slopes}", slopes)}
        return make_plugin("core.attention_backends", {**modules, "conformance": samples})

    return make


def test_a_feature_of_its_own_passes_by_its_own_reference(attention):
    report = attention().report("features", "attention")
    assert (report.failures, report.level) == ([], Level.L1)


@pytest.mark.parametrize(
    ("slopes", "caught"),
    [
        (SLOPES.replace("1, site.num_heads + 1", "site.num_heads"), {"match", "pieces"}),
        (SLOPES + " * (len(q) > 1)", {"match", "pieces"}),
        (SLOPES + " * (site.window is None)", {"match"}),
    ],
    ids=["other slopes", "decode forgets", "windows forget"],
)
def test_a_feature_that_is_not_what_its_reference_says_is_caught(attention, slopes, caught):
    names = {"match": "features_match_their_references", "pieces": "features_in_pieces_equal_the_whole"}
    assert set(attention(slopes).failing("features", "attention")) == {names[one] for one in caught}


def test_a_feature_without_a_reference_is_not_shown(attention):
    report = attention(samples="def samples(): return []\n").report("features")
    (missing,) = report.not_run
    assert missing.checks == ("every_feature_can_be_checked",) and report.level is None
    assert "the kit has no reference of acme_slopes: add an AttentionSample" in missing.because


def test_a_sample_of_a_feature_that_is_not_declared_is_caught(attention):
    failing = attention(samples=ATTENTION_SAMPLES.replace('"acme_slopes"', '"sinks"')).failing("features")
    assert "its samples are of sinks" in failing["every_feature_can_be_checked"]


# -- an operation ------------------------------------------------------------------------------------------------------

KERNEL_MANIFEST = """
from core.api import DimRule, KernelSpec

SPEC = KernelSpec(
    name="broken", impl="PKG.kernel:kernel", api=1, summary="s", op="{op}", devices=frozenset({"cpu"}),
    dtypes=frozenset({"float32", "bfloat16"}), dims={"{size}": DimRule(multiple_of={step})}, reference={reference},
)
"""
SCALED = """
import torch

def reference(x, weight, *, power):
    return x.relu() ** power * weight

def kernel(x, weight, *, power):
    out = (x.float().relu() ** power * weight.float()).to(x.dtype)
    {more}
    return out
"""
SCALED_SAMPLES = """
from core_testing.conformance import KernelSample

def make(tensors, sizes):
    x = tensors.activations(sizes["rows"], sizes["width"])
    return x, tensors.weights(sizes["width"]), {"power": sizes["power"]}

def samples():
    yield KernelSample("relu to a power", {"width": (8, 24, 64), "power": (1, 2)}, make)
"""


@pytest.fixture
def kernel(make_plugin):
    def make(more: str = "pass", **given: str):
        fields = {"op": "relu_power", "size": "width", "step": "8", "reference": "'PKG.kernel:reference'", **given}
        manifest = KERNEL_MANIFEST
        for key in ("op", "size", "step", "reference"):
            manifest = manifest.replace("{" + key + "}", fields[key])
        samples = fields.get("samples", SCALED_SAMPLES)
        source = fields.get("source", SCALED).replace("{more}", more)
        return make_plugin("core.kernels", {"manifest": manifest, "kernel": source, "conformance": samples})

    return make


def test_a_kernel_of_an_operation_of_its_own_passes_by_its_own_reference(kernel):
    report = kernel().report("kernels")
    assert (report.failures, report.not_run, report.level) == ([], [], Level.L1)


@pytest.mark.parametrize(
    ("more", "check"),
    [
        ("if power == 2 and len(x) == 61: out = out * 1.5", "generated_sizes_match_reference"),
        ("if len(x) == 1031: out[1024:] = 0", "any_number_of_rows_matches_reference"),
        ("if not x.is_contiguous(): out = out.flip(0)", "slices_match_reference"),
        ("out = out.nan_to_num(0.0)", "special_values_match_reference"),
    ],
)
def test_a_kernel_that_is_not_what_its_reference_says_is_caught(kernel, more, check):
    assert check in kernel(more).failing("kernels")


def test_arguments_of_an_operation_of_its_own_need_a_sample(kernel):
    report = kernel(samples="def samples(): return []\n").report("kernels")
    assert "the kit cannot make arguments for relu_power: add a KernelSample" in report.not_run[0].because


def test_dims_of_an_operation_of_its_own_are_sizes_of_the_sample(kernel):
    failing = kernel(size="height").failing("kernels")
    assert "dims has height" in failing["declared_sizes_exist"]


NORM = """
from core.ops import rms_norm

def kernel(x, weight, eps):
    out = rms_norm(x, weight, eps)
    {more}
    return out
"""
WIDE = """
from core_testing.conformance import KernelSample

def samples():
    yield KernelSample("one size", {"size": (7168,)})
"""


@pytest.mark.parametrize(("samples", "caught"), [(WIDE, True), ("def samples(): return []\n", False)])
def test_sizes_of_a_sample_are_tried_for_an_operation_of_core(kernel, samples, caught):
    more = "if x.shape[-1] == 7168 and len(x) > 1: out = out * 2"
    made = kernel(more, op="rms_norm", size="size", step="256", reference="None", source=NORM, samples=samples)
    assert ("generated_sizes_match_reference" in made.failing("kernels")) == caught
