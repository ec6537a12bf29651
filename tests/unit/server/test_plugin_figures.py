"""Figures of plugins on /metrics: what they read of core's, how theirs look, and what a fault of theirs leaves out."""

from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from core.api import Figure, FigureSample, Histogram, PluginError, RouteSpec
from core.server.plugin_routes.table import RouteTable
from core_testing.served import served_app

from .conftest import Api, make_options

SPEC = RouteSpec(name="counts", impl="x:Y", api=1, summary="s")
OTHER = RouteSpec(name="others", impl="x:Y", api=1, summary="s")


class Counts:
    def __init__(self, collect=None, names=("acme_words", "acme_seconds", "acme_queue")):
        self.collect, self.names = collect or self.figures, names

    def declare(self, registry):
        registry.figures(self.names, self.collect)

    def bind(self, client):
        self.client = client

    def figures(self, core):
        yield Figure("acme_words", "Words.", "counter", [FigureSample(3, {"sort": 'a"\n'}, created=5.0)])
        yield Figure("acme_seconds", "Times.", "histogram", [FigureSample(Histogram([0.5, 2], [1, 3, 4], 9.5))])
        yield Figure("acme_queue", "Now.", "gauge", [FigureSample(self.client.stats.running)])


def page(llm, *plugins):
    app = served_app(llm, make_options(), dict(zip((SPEC, OTHER), plugins, strict=False)))
    return Api(app).get("/metrics").text


def families(text):
    return {one.name: one for one in text_string_to_metric_families(text)}


def test_figures_of_each_type_are_shown_behind_cores(llm):
    llm.stats.running = 7
    text = page(llm, Counts())
    assert 'acme_words_total{sort="a\\"\\n"} 3.0\n' in text and 'acme_words_created{sort="a\\"\\n"} 5.0\n' in text
    found = families(text)
    assert [found[name].type for name in ("acme_words", "acme_seconds", "acme_queue")] == [
        *("counter", "histogram", "gauge")
    ]
    buckets = [(one.labels["le"], one.value) for one in found["acme_seconds"].samples if one.name.endswith("_bucket")]
    assert buckets == [("0.5", 1), ("2.0", 3), ("+Inf", 4)]
    assert found["acme_queue"].samples[0].value == 7
    assert text.index("core_engine_healthy") < text.index("acme_words") < text.index("process_")


def test_a_collector_reads_cores_figures_as_they_are_shown(llm):
    seen = {}

    def collect(core):
        seen.update(core)
        return []

    text = page(llm, Counts(collect))
    shown = {name: one for name, one in families(text).items() if name.startswith("core_")}
    assert set(seen) >= {"core_engine_steps", "core_e2e_request_latency_seconds", "core_http_requests"}
    assert {name for name, figure in seen.items() if figure.samples} == {
        name for name, one in shown.items() if one.samples and not name.endswith("_created")
    }
    histogram = seen["core_e2e_request_latency_seconds"].samples[0]
    assert histogram.labels == {"model_name": "acme/tiny"} and histogram.value.counts[-1] == 0
    assert histogram.value.within([20, 1]).bounds == [1.0, 20.0]


def test_buckets_are_joined():
    seen = Histogram([1, 2, 5], [1, 2, 4, 8], 30.0)
    assert seen.within([5, 1, 3]) == Histogram([1, 5], [1, 4, 8], 30.0)
    assert seen.within([]) == Histogram([], [8], 30.0)


def broken(core):
    yield Figure("acme_words", "Words.", "counter", [FigureSample(1)])
    raise KeyError("secret")


FAULTS = [
    (broken, "KeyError"),
    (lambda core: None, "TypeError"),
    (lambda core: [3], "AttributeError"),
    (lambda core: [Figure("acme_more", "", "gauge", [])], "'acme_more' was not declared"),
    (lambda core: [Figure("acme_words", "", "gauge", [])] * 2, "given twice"),
    (lambda core: [Figure("acme_words", "", "gauge", [FigureSample("3")])], "no value"),
    (lambda core: [Figure("acme_words", "", "summary", [FigureSample(3)])], "summary"),
    (lambda core: [Figure("acme_words", "", "gauge", [FigureSample(1, {"a-b": "c"})])], "label"),
    (lambda core: [Figure("acme_words", "", "gauge", [FigureSample(1, {"a": 5})])], "label"),
    (lambda core: [Figure("acme_words", "", "gauge", [FigureSample(1)] * 2)], "same labels"),
    (lambda core: [Figure("acme_words", None, "gauge", [FigureSample(1)])], "NoneType"),
    (lambda core: [Figure("acme_words", "", "gauge", [FigureSample(1, created="now")])], "now"),
    (
        lambda core: [Figure("acme_words", "", "gauge", [FigureSample(n, {"a": str(n)}) for n in range(10_001)])],
        "10000",
    ),
    *(
        (lambda core, odd=odd: [Figure("acme_words", "", "histogram", [FigureSample(odd)])], "no value")
        for odd in (
            3,
            Histogram([1], [1], 1.0),
            Histogram([2, 1], [1, 1, 1], 1.0),
            Histogram([1, math.inf], [1, 1, 1], 1.0),
            Histogram([1], [2, 1], 1.0),
        )
    ),
]


@pytest.mark.parametrize(("collect", "why"), FAULTS)
def test_what_cannot_be_shown_is_left_out_and_told_once(llm, caplog, collect, why):
    plugin, other = Counts(collect), Counts(names=("other_queue",))
    other.collect = lambda core: [Figure("other_queue", "Now.", "gauge", [FigureSample(1)])]
    app = served_app(llm, make_options(), {SPEC: plugin, OTHER: other})
    api = Api(app)
    for _ in range(2):
        found = families(api.get("/metrics").text)
        assert "acme_words" not in found and "other_queue" in found and "core_engine_healthy" in found
    told = [record.getMessage() for record in caplog.records if "CORE-P108" in record.getMessage()]
    assert len(told) == 1 and "route plugin 'counts' (tested)" in told[0] and why in told[0]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("core_engine_steps",), "core has those that begin with core_"),
        (("core_mine",), "core has those that begin with core_"),
        (("process_x",), "core has those"),
        (("acme words",), "names are letters"),
        (("",), "names are letters"),
        ((5,), "names are letters"),
        (("acme_a", "acme_a"), "route plugin 'counts' .tested. has declared it"),
        (("acme_a", "acme_a_total"), "route plugin 'counts' .tested. has declared it"),
    ],
)
def test_names_that_cannot_be_stop_the_start(llm, names, why):
    with pytest.raises(PluginError, match=f"'counts' .tested. cannot have the figure .*{why}"):
        page(llm, Counts(names=names))


def test_names_of_another_plugin_stop_the_start_with_both_owners(llm):
    with pytest.raises(PluginError, match=r"'others' .tested. cannot have .* 'counts' .tested. has declared it"):
        page(llm, Counts(), Counts(names=("acme_words_total",)))


@pytest.mark.parametrize("compat", ["none", "counts", "counts@acme", "others", "nobody"])
def test_figures_by_other_names_have_to_be_there(compat):
    table = RouteTable()
    Counts().declare(table.registry(SPEC.name, "'counts' (tested)", SPEC))
    names = {"'counts' (tested)": "counts", "'others' (tested)": "others"}
    if compat in ("others", "nobody"):
        with pytest.raises(PluginError, match=f"'{compat}' has no figures for --metrics-compat {compat}"):
            table.require_figures(compat, names)
    else:
        table.require_figures(compat, names)
