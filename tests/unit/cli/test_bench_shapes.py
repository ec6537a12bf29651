"""The comparison on models of the sizes people run (`benchmarks/compare`): names, sizes, bounds, and the page."""

from __future__ import annotations

import subprocess
import sys
from math import prod
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.fixture
def store(tmp_path):
    from benchmarks.compare.store import Store

    return Store(tmp_path / "results")


def names(*patterns):
    from benchmarks.compare.variants import chosen

    return [variant.name for variant in chosen(patterns)]


# ---- names -----------------------------------------------------------------------------------------------------------


def test_variants_have_names_of_their_own_and_shapes_and_groups_that_are_there():
    from benchmarks.compare.cases import GROUPS
    from benchmarks.compare.isa import CAPS
    from benchmarks.compare.shapes import SHAPES
    from benchmarks.compare.variants import SHAPE_VARIANTS, SUBJECTS, VARIANTS

    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)
    assert set(SUBJECTS) == set(SHAPES)
    for variant in SHAPE_VARIANTS:
        assert variant.shape in SHAPES and set(variant.groups) <= set(GROUPS)
        assert variant.isa == "" or variant.isa in CAPS
        assert variant.model.partition(":")[2].startswith("gguf-") == (variant.engine == "llama") or (
            variant.engine == "core"
        )


def test_a_shapes_name_means_all_that_the_processor_has():
    of_shape = names("llama-3.2-1b")
    assert {"core-llama-3.2-1b", "llama-llama-3.2-1b-iq4_xs", "vllm-llama-3.2-1b-awq"} <= set(of_shape)
    assert not any("@" in name for name in of_shape)
    assert [f"{name}@avx2" for name in of_shape] == names("llama-3.2-1b@avx2")


@pytest.mark.parametrize(
    ("patterns", "due"),
    [
        (["core-qwen3-4b-q4_k_m"], ["core-qwen3-4b-q4_k_m"]),
        (["*-qwen3-4b-q4_k_m"], ["core-qwen3-4b-q4_k_m", "llama-qwen3-4b-q4_k_m"]),
        (["*-qwen3-4b-w8a8@avx?"], ["core-qwen3-4b-w8a8@avx2", "vllm-qwen3-4b-w8a8@avx2"]),
        (["transformers"], ["transformers-bf16", "transformers-fp32"]),
        (
            ["qwen3-next"],
            [f"{end}" for end in ("core-qwen3-next", "vllm-qwen3-next", "llama-qwen3-next")]
            + ["core-qwen3-next-q4_0", "llama-qwen3-next-q4_0"],
        ),
        (["nobody"], []),
    ],
)
def test_patterns_select_by_name(patterns, due):
    assert names(*patterns) == due


def test_models_of_gigabytes_are_only_made_for_who_asks():
    from benchmarks.compare.cases import DEMO_VARIANTS

    assert names() == [variant.name for variant in DEMO_VARIANTS]
    assert "core-bf16" in names("core") and not any("qwen3" in name for name in names("core"))


def test_what_is_selected_is_listed_and_not_run(monkeypatch, capsys):
    from benchmarks.compare import __main__ as tool

    monkeypatch.setattr(sys, "argv", ["compare", "--list", "--only", "*-gemma-3-1b-awq", "--groups", "offline,server"])
    tool.main()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [[f"{engine}-gemma-3-1b-awq", "offline", "server"] for engine in ("core", "vllm")]


def test_files_of_shapes_are_removed_when_asked(tmp_path):
    from benchmarks.compare import __main__ as tool
    from benchmarks.compare import models
    from benchmarks.compare.variants import chosen

    kept = {tmp_path / "smollm2-bf16", tmp_path / "qwen3-8b-12l-q4_0.gguf", tmp_path / "qwen3-4b-q8_0.gguf"}
    gone = {tmp_path / "qwen3-4b-bf16", tmp_path / "qwen3-4b-bf16.gguf", tmp_path / "qwen3-4b-q4_0.gguf"}
    for path in kept | gone:
        path.write_text("") if path.suffix == ".gguf" else path.mkdir()
    for variant in chosen(["*-qwen3-4b-q4_0", "core-bf16"]):
        models.discard(tmp_path, tool._files(variant))
    assert set(tmp_path.iterdir()) == kept


# ---- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "weights", "cached"),
    [
        ("llama-3.2-1b", 1_235_814_400, 16 * 2 * 8 * 64),
        ("llama-3.2-3b", 3_212_749_824, 28 * 2 * 8 * 128),
        ("qwen3-4b", 4_022_468_096, 36 * 2 * 8 * 128),
        ("qwen3-8b", 8_190_735_360, 36 * 2 * 8 * 128),
        ("gemma-3-1b", 999_885_952, 26 * 2 * 256),
    ],
)
def test_whole_models_have_as_many_weights_as_the_published_ones(name, weights, cached):
    from benchmarks.compare.shapes import SHAPES

    shape = SHAPES[name]
    assert sum(prod(size) for _, size in shape.tensors()) == weights
    assert shape.kv_bytes(1) == 2 * cached


def test_a_text_has_states_of_recurrences_however_long_it_is():
    from benchmarks.compare.shapes import SHAPES

    shape = SHAPES["qwen3-next"]
    states = 3 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)
    assert shape.kv_bytes(0, streams=2) == 2 * states
    assert shape.kv_bytes(100) == states + 100 * 2 * 2 * 2 * 256


def test_both_layouts_of_a_shape_have_the_same_weights():
    from benchmarks.compare.shapes import SHAPES

    for name, shape in SHAPES.items():
        layouts = [sum(prod(size) for _, size in tensors) for tensors in (shape.tensors(), shape.gguf_tensors())]
        # llama.cpp takes one row less of what Qwen3-Next's shared expert is weighted with, and has no bias of its own.
        assert layouts[0] == pytest.approx(layouts[1], rel=1e-6), name
        active = [
            sum(shape.share(tensor) * prod(size) for tensor, size in tensors if len(size) > 1)
            for tensors in (shape.tensors(), shape.gguf_tensors())
        ]
        assert active[0] == pytest.approx(active[1], rel=1e-4), name


@pytest.mark.parametrize("window", [0, 1, 4, 9, 100])
def test_a_window_bounds_what_is_kept_and_what_is_multiplied(window):
    from benchmarks.compare.shapes.base import Span

    span = Span(values=8, products=16, window=window)
    pairs = sum(1 for query in range(9) for key in range(query + 1) if not window or query - key < window)
    assert span.pairs(9) == pairs
    assert span.seen(9) == (min(window, 9) or 9)


def test_a_cut_model_has_the_first_layers_and_says_so():
    from benchmarks.compare.shapes import SHAPES

    whole, cut = SHAPES["qwen3-8b"], SHAPES["qwen3-8b-12l"]
    assert cut.title == "12 of 36 layers of Qwen3-8B"
    assert cut.kv_bytes(100) * 3 == whole.kv_bytes(100)
    assert cut.prompt_products(512) < whole.prompt_products(512) / 2.9


def test_a_prompt_multiplies_all_weights_but_those_of_the_output_once():
    from benchmarks.compare.shapes import SHAPES

    shape = SHAPES["llama-3.2-1b"]
    head = 128_256 * 2048
    attention = 16 * 2 * 32 * 64 * 512 * 513 // 2
    norms = (2 * 16 + 1) * 2048
    assert shape.prompt_products(512) == 512 * (1_235_814_400 - head - norms) + head + attention
    experts = SHAPES["qwen3-moe"]
    few = dict(experts.tensors())["model.layers.0.mlp.experts.5.up_proj.weight"]
    assert few == (768, 2048) and experts.share("model.layers.0.mlp.experts.5.up_proj.weight") == 8 / 128


# ---- instruction sets ------------------------------------------------------------------------------------------------


def test_llama_cpp_is_built_with_no_more_than_the_bound(tmp_path, monkeypatch):
    from benchmarks.compare import llama_cpp

    ran = []
    monkeypatch.setattr(llama_cpp, "make_venv", lambda folder, *_: folder)
    monkeypatch.setattr(llama_cpp, "_source", lambda folder, tools: folder / "src")
    monkeypatch.setattr(llama_cpp, "_works", lambda programs, model: True)
    monkeypatch.setattr(llama_cpp, "run", lambda *command: ran.append(command))
    for isa in ("avx2", "avx_vnni", "avx512"):
        llama_cpp.programs(tmp_path, isa).mkdir(parents=True)
        llama_cpp.make(tmp_path, lambda: tmp_path / "x.gguf", isa)
    configured = [set(command) for command in ran if "-S" in command]
    assert all("-DGGML_NATIVE=OFF" in flags for flags in configured)
    assert ["-DGGML_AVX512=ON" in flags for flags in configured] == [False, False, True]
    assert ["-DGGML_AVX_VNNI=ON" in flags for flags in configured] == [False, True, False]
    assert all({"-DGGML_AVX2=ON", "-DGGML_AVX512_BF16=OFF"} <= flags for flags in configured)
    assert llama_cpp.versions(tmp_path, "avx2")["built"] == "for avx2"


def test_engines_are_told_of_the_bound(tmp_path, monkeypatch):
    from benchmarks.compare import engines, environments
    from benchmarks.compare.variants import chosen

    made = environments.Environments(tmp_path)
    monkeypatch.setattr(environments.platform, "machine", lambda: "aarch64")
    with pytest.raises(environments.SetupError, match="avx2 is a bound for x86-64, and this machine is aarch64"):
        made.get("core", "avx2")
    monkeypatch.setattr(environments.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(environments, "run", lambda *_: "core 1.0")
    monkeypatch.setattr(environments.vllm_cpu, "make", lambda folder: None)
    for variant in chosen(["core-llama-3.2-1b@avx2", "vllm-llama-3.2-1b@avx2", "vllm-llama-3.2-1b"]):
        env = made.get(variant.engine, variant.isa)
        assert env.environ.get("CORE_CPU_ISA") == env.environ.get("ATEN_CPU_CAPABILITY") == (variant.isa or None)
        assert env.environ.get("XDG_CACHE_HOME", "").endswith("cache-avx2") == (
            "vllm" in variant.name and variant.isa != ""
        )
        plan = engines.server(variant, env, engines.Given(tmp_path, 2, 300))
        assert ("run_capped.py" in " ".join(plan.command)) == (variant.name == "vllm-llama-3.2-1b@avx2")
        assert {"300MiB", str(300 << 20)} & set(plan.command)
    assert set(made.facts()) == {"core", "vllm"}


@pytest.mark.parametrize("bound", ["avx2", "avx_vnni"])
def test_torch_denies_what_is_above_the_bound(tmp_path, bound):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch\n"
        "print(sys.argv[1:], torch.cpu._is_avx512_supported(), torch.cpu._is_avx512_bf16_supported(), "
        "torch.cpu._is_amx_tile_supported())\n"
    )
    runner = ROOT / "benchmarks" / "compare" / "runners" / "run_capped.py"
    command = [sys.executable, str(runner), bound, str(script), "a", "b"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "['a', 'b'] False False False\n"


# ---- the page --------------------------------------------------------------------------------------------------------

MACHINE = {"stream_gb_s": 20.0, "products_gflop_s": 250.0}


def offline(rates, *, peak=1500.0, tokens):
    work = {"weights_mib": 800.0, "kv_mib": 256.0, "tokens": tokens}
    data = {"tokens_per_s": rates, "ready_s": [99.0], "peak_mib": peak, "machine": MACHINE, "work": work}
    return {"when": "2026-01-02 03:04", "data": data}


def test_the_page_has_rates_shares_ratios_memory_and_the_server(store, tmp_path):
    from benchmarks.compare import shape_report

    docs = tmp_path / "docs"
    docs.mkdir()
    asked = {"decode": {"bytes": 0.8e9}, "prefill": {"operations": 2e9}}
    for engine, decode in (("core", 20.0), ("llama", 16.0)):
        rates = {"decode": [decode], "batch": [100.0], "prefill": [100.0]}
        store.put(f"{engine}-llama-3.2-1b-q4_k_m", "offline", 1, offline(rates, tokens=asked))
    store.put("vllm-llama-3.2-1b-awq", "offline", 1, {"error": "no such kernel"})
    store.put("core-llama-3.2-1b-q4_k_m", "startup", 1, {"when": "2026-01-03 00:00", "data": {"ready_s": [1.5, 2.5]}})
    served = {"output_throughput": 90.0, "median_ttft_ms": 300.0, "p99_ttft_ms": 450.0, "median_tpot_ms": 80.04}
    load = {"when": "2026-01-03 00:00", "data": {"c8": {**served, "p99_tpot_ms": 99.0, "failed": 0}}}
    store.put("core-llama-3.2-1b-q4_k_m", "server", 1, load)
    contexts = offline({"decode8192": [10.0]}, tokens={"decode8192": {"bytes": 1e9}})
    store.put("core-llama-3.2-1b-q4_k_m@avx2", "contexts", 1, contexts)

    facts = {"llama@avx2": {"built": "for avx2"}, "plot": {"matplotlib": "3"}}
    assert shape_report.write(docs, store, SimpleNamespace(facts=lambda: facts))
    page = (docs / "benchmarks-shapes.md").read_text()
    lines = page.splitlines()
    assert "- llama@avx2: built for avx2" in lines and "matplotlib" not in page
    assert "--only llama-3.2-1b,llama-3.2-1b@avx2`" in page
    assert "| tok/s, share | decode, 16 in | 32 at once | prompt of 1,024 |" in lines
    assert "| core-llama-3.2-1b-q4_k_m | 20.0, 80% | 100.0 | 100.0, 80% |" in lines
    assert "| llama-llama-3.2-1b-q4_k_m | 16.0, 64% | 100.0 | 100.0, 80% |" in lines
    assert "| core-llama-3.2-1b-q4_k_m | 1.25 (llama) | 1.00 (llama) | 1.00 (llama) |" in lines
    assert "| core-llama-3.2-1b-q4_k_m | 1,500 | 800 | 256 | 444 | 2.0 (1.5-2.5) | 20.0 | 250 |" in lines
    assert "| llama-llama-3.2-1b-q4_k_m | 1,500 | 800 | 256 | 444 | - | 20.0 | 250 |" in lines
    assert "| core-llama-3.2-1b-q4_k_m | 8 | 90.0 | 300 | 450 | 80.0 | 99.0 | 0 |" in lines
    assert "- vllm-llama-3.2-1b-awq, offline: no such kernel" in lines
    assert "### Llama-3.2-1B, held to avx2" in lines
    assert "| core-llama-3.2-1b-q4_k_m@avx2 | 10.0, 50% |" in lines
    assert "- measured: 2026-01-02, 2026-01-03" in lines


def test_figures_of_other_machines_stay_on_the_page(store, tmp_path, monkeypatch):
    from benchmarks.compare import machine, shape_report

    nothing = SimpleNamespace(facts=dict)
    for name, rate in (("aarch64, 8 CPUs", 10.0), ("x86_64, 2 CPUs", 20.0), ("aarch64, 8 CPUs", 30.0)):
        monkeypatch.setattr(machine, "describe", lambda name=name: name)
        store.put("core-llama-3.2-1b", "offline", 1, offline({"decode": [rate]}, tokens={}))
        assert shape_report.write(tmp_path, store, nothing)
    page = (tmp_path / "benchmarks-shapes.md").read_text()
    assert page.count("# Benchmarks of the sizes people run") == 1
    sections = page.split("\n## ")[1:]
    assert [section.partition("\n")[0] for section in sections] == ["aarch64, 8 CPUs", "x86_64, 2 CPUs"]
    assert ["| core-llama-3.2-1b | 30.0 |" in sections[0], "| core-llama-3.2-1b | 20.0 |" in sections[1]] == [True] * 2


def test_every_case_of_shapes_has_a_column():
    from benchmarks.compare import shape_report
    from benchmarks.compare.cases import CASES

    cases = [case for group in CASES.values() for case in group]
    assert {case.name for case in cases} == set(shape_report._HEADS)
    assert len({case.name for case in cases}) == len(cases) == len(shape_report._CASES)


def test_a_page_without_figures_is_not_written(store, tmp_path):
    from benchmarks.compare import shape_report

    store.put("core-qwen3-4b", "offline", 1, {"error": "no room"})
    assert not shape_report.write(tmp_path, store, SimpleNamespace(facts=dict))
    assert not list(tmp_path.glob("*.md"))
