"""Each check of encoders, and of attention without a cache, finds what is wrong in its way."""

from __future__ import annotations

import pytest

MANIFEST = """
from core.api import ModelSpec

SPEC = ModelSpec(
    name="broken", impl="PKG.model:Broken", api=2, summary="s", shape="PKG.model:shape", tasks={tasks},
    architectures={architectures},
)
"""

MODEL = """
from core.api import ModelShape, WeightRules
from core_plugin_bert.config import shape as good_shape
from core_plugin_bert.model import Encoder

def shape(config):
    found = good_shape(config)
    {shape}
    return found

class Broken(Encoder):
    @classmethod
    def weight_rules(cls, config):
        rules = super().weight_rules(config)
        {rules}
        return rules

    def forward(self, step):
        {before}
        hidden = super().forward(step)
        starts = step.plan.query_starts.tolist()
        {forward}
        return hidden
"""

CASES = {
    "hidden_states_equal_transformers": {"forward": "hidden = hidden + 0.1 * (len(starts) == 2)"},
    "prompts_are_independent": {"forward": "hidden = hidden + 0.1 * (len(starts) == 5)"},
    "ranks_share_the_encoder": {"forward": "hidden = hidden + 0.1 * (self.layers[0].view[2] == 2)"},
    "types_of_tokens_are_seen": {"before": "step.token_types = None"},
    "encoder_shape_agrees_with_the_config": {"shape": "found = found.model_copy(update={'features': frozenset()})"},
    "damaged_encoders_are_refused": {"rules": "rules = rules.model_copy(update={'skip': (*rules.skip, '*.no_such*')})"},
}


KNOWN = ("BertModel", "BertForSequenceClassification")


def make(make_plugin, tasks="{'embed', 'classify'}", architectures=KNOWN, **changes):
    places = dict.fromkeys(("shape", "rules", "before", "forward"), "pass")
    source = MODEL
    for place, text in (places | changes).items():
        source = source.replace("{" + place + "}", text)
    return make_plugin(
        "core.models", {"manifest": MANIFEST.format(tasks=tasks, architectures=architectures), "model": source}
    )


@pytest.mark.parametrize("check", CASES)
def test_a_wrong_encoder_is_found_by_its_check(make_plugin, check):
    failing = set(make(make_plugin, **CASES[check]).failing("encoders"))
    # What is wrong with a prompt alone is wrong with its head, and beside others, as well.
    follows = {"heads_equal_transformers", "prompts_are_independent"}
    assert check in failing <= {check} | (follows if check == "hidden_states_equal_transformers" else set())


def test_a_wrong_head_is_found(make_plugin):
    plugin = make(make_plugin, forward="if hasattr(self, 'classify'): self.classify.layers = self.classify.layers[1:]")
    assert set(plugin.failing("encoders")) == {"heads_equal_transformers"}


def test_a_right_encoder_passes_and_no_check_of_decoders_is_for_it(make_plugin):
    report = make(make_plugin).report("models", "encoders")
    states = {one.check: one.status for one in report.outcomes}
    assert states["logits_equal_transformers"] == "skipped"
    assert states["hidden_states_equal_transformers"] == "passed"
    assert not report.failures


def test_an_architecture_without_a_tiny_configuration_stays_at_l0(make_plugin):
    plugin = make(make_plugin, architectures=("BertModel", "AcmeModel"))
    report = plugin.report(checks=("every_encoder_can_be_checked",))
    assert [one.status for one in report.outcomes] == ["unavailable"]
    assert "AcmeModel" in report.outcomes[0].message


def test_a_model_that_generates_is_not_asked_for_vectors(make_plugin):
    report = make(make_plugin, tasks="{'generate'}").report("encoders")
    assert {one.status for one in report.outcomes} == {"skipped"}


ATTENTION = """
from core.api import AttentionSpec

SPEC = AttentionSpec(
    name="broken", impl="PKG.backend:Backend", api=2, summary="s", devices={"cpu"}, dtypes={"float32"},
    kv_dtypes={"float32"}, features={"bidirectional", "sliding_window", "position_bias"},
)
"""

BACKEND = """
from types import SimpleNamespace
import torch
from core_plugin_torch_sdpa.backend import TorchSdpaBackend

class Layer:
    def __init__(self, inner, site):
        self.inner, self.site = inner, site

    def forward(self, q, k, v, plan):
        out = self.inner.forward(q, k, v, plan.inner)
        starts, site = plan.batch.query_starts, self.site
        return out + 0.5 if {condition} else out

class Backend(TorchSdpaBackend):
    def plan(self, batch):
        return SimpleNamespace(inner=super().plan(batch), batch=batch)

    def encoder(self, site):
        return Layer(super().encoder(site), site)
"""


@pytest.mark.parametrize(
    ("condition", "check"),
    [
        ("site.num_kv_heads == 1", "bidirectional_matches_reference"),
        ("site.window == 7", "bidirectional_windows_match_reference"),
        ("site.bias is not None", "position_biases_match_reference"),
        ("len(starts) == 2", "bidirectional_rows_are_independent"),
    ],
)
def test_wrong_attention_is_found(make_plugin, condition, check):
    modules = {"manifest": ATTENTION, "backend": BACKEND.replace("{condition}", condition)}
    assert set(make_plugin("core.attention_backends", modules).failing("encoding")) == {check}
