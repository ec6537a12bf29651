"""The comparison of answers with float32 (`benchmarks/accuracy`): its figures, and the report's table of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def logs(*probabilities):
    return np.log(np.array(probabilities))


def told(*probabilities, of=2):
    """The first `of` tokens of a distribution, as an engine tells them."""
    return dict(enumerate(logs(*probabilities)[:of].tolist()))


def test_divergence_is_that_of_what_is_told_and_the_rest():
    from benchmarks.accuracy.figures import divergence

    p, q = (0.5, 0.3, 0.1, 0.1), (0.4, 0.3, 0.2, 0.1)
    assert divergence(logs(*p), told(*p)) == pytest.approx(0, abs=1e-9)
    assert divergence(logs(*p), told(*q, of=4)) == pytest.approx(np.sum(np.exp(logs(*p)) * (logs(*p) - logs(*q))))
    lumped = 0.5 * np.log(0.5 / 0.4) + 0.2 * np.log(0.2 / 0.3)
    assert divergence(logs(*p), told(*q)) == pytest.approx(lumped)


def test_figures_are_means_over_places():
    from benchmarks.accuracy.figures import Text, compare

    p, q = (0.5, 0.3, 0.2), (0.3, 0.5, 0.2)
    figures = compare([logs(*p), logs(*p)], [told(*p), told(*q)])
    assert (figures.agreement, figures.places) == (0.5, 2)
    assert figures.divergence == pytest.approx(0.5 * (0.5 - 0.3) * np.log(0.5 / 0.3))
    assert list(Text([7, 8, 9], 1).places) == [1, 2]
    with pytest.raises(ValueError, match="argument"):
        compare([logs(*p)], [])


def test_the_report_shows_what_was_kept(tmp_path):
    from benchmarks.compare import report
    from benchmarks.compare.store import Store

    store = Store(tmp_path)
    assert report._accuracy(store) == ""
    ways = {"tokens": {"divergence": 0.00123, "agreement": 0.987, "places": 7}}
    ways["prompt"] = {"divergence": 0.00456, "agreement": 0.5, "places": 7}
    store.put("core-q4_1", "accuracy", 1, {"data": ways})
    store.put("llama-q4_1", "accuracy", 1, {"error": "no server"})
    shown = report._accuracy(store)
    assert "| core-q4_1 | 0.00123 | 98.7% | 0.00456 | 50.0% |" in shown
    assert "7 tokens" in shown
    assert "llama" not in shown


def test_perplexity_is_that_of_the_text_and_its_spread_that_of_the_differences():
    from benchmarks.accuracy.figures import compare

    p, q = (0.5, 0.3, 0.2), (0.3, 0.5, 0.2)
    figures = compare([logs(*p), logs(*p)], [told(*q), told(*p)], text=[0, 1])
    assert figures.due == pytest.approx((0.5 * 0.3) ** -0.5)
    assert figures.perplexity == pytest.approx((0.3 * 0.3) ** -0.5)
    assert figures.spread == pytest.approx(np.log(0.5 / 0.3) / 2 / 2**0.5)
    untold = compare([logs(*p)], [told(0.6, 0.3, 0.1)], text=[2])
    assert untold.perplexity == pytest.approx(10)  # what the told ones leave


def test_the_page_shows_what_was_measured_and_what_was_not():
    from benchmarks.accuracy import page

    one = {"divergence": 0.1, "agreement": 0.75, "places": 1016, "perplexity": 11.0, "due": 10.0, "spread": 0.01}
    found = {"int4": {**one, "codes": {**one, "perplexity": 12.0}}, "llama.cpp Q4_0": {**one, "perplexity": 0.0}}
    shown = page.written({"Tiny": {**found, "GGUF Q6_K": {"error": "no program"}}}, [*found, "GGUF Q6_K", "fp8"])
    assert "## Tiny\n\n1,016 tokens; the reference's perplexity is 10.00.\n" in shown
    assert "| int4 | 0.10000 | 75.0% | 11.00 | +10.00 ± 1.10 % | +20.00 ± 1.20 % |" in shown
    assert "| llama.cpp Q4_0 | 0.10000 | 75.0% | - | - | - |" in shown
    assert "Did not run: GGUF Q6_K (no program).\n" in shown
    assert "Not measured yet: fp8.\n" in shown
    assert "## Other\n\nNot measured yet.\n" in page.written({"Other": {}}, ["int4"])


def test_what_takes_a_program_that_is_not_there_is_kept_as_an_error(tmp_path, monkeypatch):
    from benchmarks.accuracy import makers, methods
    from benchmarks.compare.shell import SetupError

    def lacking(folder):
        raise SetupError("no compiler for llama-quantize")

    monkeypatch.setattr(makers.llama_cpp, "quantizer", lacking)
    (tmp_path / "Tiny-F32.gguf").touch()
    model = methods.Model("Tiny", tmp_path / "none.gguf", tmp_path, tmp_path)
    found = methods.measured(model, methods.Method("GGUF Q6_K", "Q6_K"), [], np.zeros((0, 4)), tmp_path)
    assert "llama-quantize" in found["error"]


def test_the_codes_alone_are_those_of_what_core_rounds():
    from benchmarks.accuracy import methods

    alone = {method.name: method.codes_alone() for method in methods.METHODS}
    assert alone["float32"] is None and alone["bfloat16"] is None
    assert all(one is None for name, one in alone.items() if name.startswith(("llama.cpp", "vLLM")))
    assert alone["GGUF Q4_0"].options["dtype"] == alone["int4"].options["dtype"] == "float32"
    assert alone["int4"].options["quantization"] == "int4"


def test_what_is_kept_is_not_measured_again(monkeypatch):
    from benchmarks.accuracy import methods

    asked = []
    monkeypatch.setattr(methods, "measured", lambda model, method: asked.append(method.options) or {"places": 1})
    int4 = next(method for method in methods.METHODS if method.name == "int4")
    assert methods.row({"places": 9}, False, None, int4) == {"places": 9}
    assert asked == []
    assert methods.row({"places": 9}, True, None, int4) == {"places": 9, "codes": {"places": 1}}
    assert methods.row({}, True, None, int4) == {"places": 1, "codes": {"places": 1}}
    assert [options.get("dtype") for options in asked] == ["float32", None, "float32"]
    assert methods.row({"error": "no program"}, True, None, int4) == {"error": "no program"}


def test_vllm_is_asked_for_the_places_of_the_answer(tmp_path, monkeypatch):
    from benchmarks.accuracy import engines
    from benchmarks.accuracy.figures import Text
    from benchmarks.compare.environments import Environment
    from benchmarks.compare.process import Measured

    asked = []

    def measure(command, environ, timeout):
        asked.append((command[0], json.loads(command[2])["texts"]))
        return Measured({"told": [[None, {"7": -0.1}, {"8": -0.2}], [None, {"9": -0.3}]]}, 0.0)

    monkeypatch.setattr(engines.Environments, "get", lambda self, name: Environment(f"{name}/python", tmp_path))
    monkeypatch.setattr(engines.process, "measure", measure)
    found = engines.vllm(tmp_path, [Text([5, 6, 8], 2), Text([5, 9], 1)], 512, {"peers": tmp_path})
    assert found == [{8: -0.2}, {9: -0.3}]
    assert asked == [("vllm/python", [[5, 6, 8], [5, 9]])]


def test_mxfp4_of_two_exponents_is_never_further_away():
    from benchmarks.accuracy import makers
    from core.api.forms import Part, WeightForm
    from core.ops.products import opened

    weight = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))
    errors = []
    for store in (makers.mxfp4, makers.mxfp4_searched):
        tensors = store("m", weight)
        packed = tensors["m.weight"]
        codes = torch.stack([packed & 15, packed >> 4], -1).flatten(1)
        part = Part(WeightForm(codes="e2m1", inputs=32, scale="e8m0"), codes, tensors["m.weight_scale"])
        errors.append((opened(part, torch.float32) - weight).unflatten(1, (-1, 32)).square().sum(-1))
    assert (errors[1] <= errors[0]).all() and (errors[1] < errors[0]).any()
