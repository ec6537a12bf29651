from __future__ import annotations

import json

import pytest

from core.api.errors import CoreError
from core.config.resolved import EngineConfig, Options
from core.selection.resolver import Resolver, resolve


@pytest.fixture
def world(site):
    site.install_world()
    return site


def options(**sections):
    return Options.model_validate(sections)


def run(site, *disabled, **sections):
    return resolve(options(**sections), catalogue=site.catalogue(*disabled))


def fails(site, *disabled, **sections):
    with pytest.raises(CoreError) as caught:
        run(site, *disabled, **sections)
    return caught.value


HOOK_HEAD = "from core.api import ConfigPatch, Problem, hookimpl\n"


def add_hook(site, body, name="tuner"):
    site.install(f"acme-{name}", {"core.plugins": {name: f"{name}_mod"}}, {f"{name}_mod": HOOK_HEAD + body})


@pytest.mark.covers("PLAT-01", "ATTN-01")
def test_everything_is_chosen_for_the_default_model(world):
    resolution = run(world)
    config = resolution.config
    assert [(one.group.removeprefix("core."), one.name) for one in config.plan.drivers] == [
        ("platforms", "host"),
        ("model_sources", "demo"),
        ("weight_loaders", "txt"),
        ("models", "llama"),
        ("quantization", "none"),
        ("attention_backends", "quick"),
        ("executors", "inproc"),
        ("schedulers", "fcfs"),
    ]
    assert (config.dtype, config.kv_dtype, config.block_size, config.max_model_len) == ("bfloat16", "bfloat16", 32, 128)
    assert config.files.name == "demo" and config.checkpoint.architecture == "LlamaForCausalLM"
    assert type(resolution.reader).__name__ == "Reader"
    assert not resolution.warnings and not resolution.patches


def test_a_source_may_know_sampling_defaults_and_files_know_better(world):
    assert run(world).config.checkpoint.generation_config == {"temperature": 0.2, "top_k": 5}


def test_the_configuration_travels_as_json(world):
    config = run(world, select={"kv_connector": ["store"]}).config
    again = EngineConfig.model_validate_json(config.model_dump_json())
    assert again == config and again.plan.digest == config.plan.digest


def test_every_report_explains_its_choice(world):
    reports = {report.group: report for report in run(world).reports}
    states = {row.name: (row.state, row.score, row.reasons) for row in reports["core.platforms"].rows}
    assert states == {"host": ("chosen", 2050, ()), "gpu": ("rejected", None, ("no driver",))}
    attention = reports["core.attention_backends"]
    assert [(row.name, row.score) for row in attention.rows] == [("quick", 2080), ("plain", 1050)]
    assert attention.subject == "host, head_dim 64, bfloat16, kv bfloat16, block 32"


@pytest.mark.parametrize(
    ("sections", "facts"),
    [
        ({"model": {"dtype": "float32"}}, ("float32", "float32", 32, 128)),
        ({"kv": {"kv_dtype": "float32"}}, ("bfloat16", "float32", 32, 128)),
        ({"kv": {"block_size": 48}}, ("bfloat16", "bfloat16", 48, 128)),
        ({"model": {"max_model_len": 100}}, ("bfloat16", "bfloat16", 32, 100)),
    ],
)
def test_the_users_values_win(world, sections, facts):
    config = run(world, **sections).config
    assert (config.dtype, config.kv_dtype, config.block_size, config.max_model_len) == facts


def test_a_checkpoint_dtype_the_platform_lacks_gives_the_platforms_first(world):
    model = world.model("half", "model LlamaForCausalLM none 128 float16")
    assert run(world, model={"model": model}).config.dtype == "float32"


def test_a_dtype_the_platform_does_not_list_is_used_with_a_warning(world):
    resolution = run(world, model={"dtype": "float16"})
    assert resolution.config.dtype == "float16"
    assert [warning.code for warning in resolution.warnings] == ["CORE-C113"]
    assert resolution.config.plan.one("core.attention_backends").name == "plain"


def test_a_file_is_found_by_the_source_that_claims_it(world):
    resolution = run(world, model={"model": world.model("mine")})
    assert resolution.config.files.name == "mine"
    assert resolution.config.plan.one("core.model_sources").name == "files"


def test_an_alias_comes_before_the_score(world, tmp_path, monkeypatch):
    (tmp_path / "demo").write_text("not this one")
    monkeypatch.chdir(tmp_path)
    assert run(world, model={"model": "demo"}).config.plan.one("core.model_sources").name == "demo"


def test_optional_plugins_take_part_only_when_named(world):
    select = {"tool_parser": "hermes", "kv_connector": ["store"], "weight_transfer": "disk"}
    plan = run(world, select=select).config.plan
    assert [plan.one(f"core.{group}").name for group in ("tool_parsers", "kv_connectors", "weight_transfer")] == [
        "hermes",
        "store",
        "disk",
    ]


def test_figures_by_other_names_bring_their_route_plugin(world):
    manifest = "\n".join(
        f"{name.upper()} = RouteSpec(name={name!r}, impl='m:Y', api=1, summary='', automatic={name == 'api'})"
        for name in ("api", "shown")
    )
    points = {"core.routes": {"api": "acme_m:API", "shown": "acme_m:SHOWN"}}
    world.install("acme-m", points, {"acme_m": f"from core.api import RouteSpec\n{manifest}\n"})

    def routes(compat, *named):
        found = run(world, server={"metrics_compat": compat}, select={"route": list(named)}).config.plan.of(
            "core.routes"
        )
        return [one.name for one in found]

    assert routes("none") == ["api"]
    assert routes("shown") == ["api", "shown"]
    assert routes("shown", "shown") == ["api", "shown"]
    assert routes("api@acme-m") == ["api"]
    assert "Installed: api, shown." in str(fails(world, server={"metrics_compat": "other"}))


@pytest.mark.parametrize(
    ("sections", "code", "text"),
    [
        ({"model": {"model": "no/such"}}, "CORE-M101", "no model source knows 'no/such'. Sources asked: files, demo."),
        ({"model": {"max_model_len": 129}}, "CORE-C110", "max_model_len 129 is greater than the 128 positions"),
        (
            {"select": {"platform": "gpu"}},
            "CORE-P201",
            "platform 'gpu' (core-plugin-world 1.0) cannot serve here: no dri",
        ),
        ({"select": {"platform": "hots"}}, "CORE-P101", "Did you mean 'host'?"),
        ({"select": {"attention_backend": "quick"}, "kv": {"block_size": 8}}, "CORE-P201", "not a multiple of 16"),
        ({"select": {"kv_connector": ["store", "far"]}}, "CORE-P201", "device host not in {gpu}"),
        ({"select": {"kv_connector": ["nope"]}}, "CORE-P101", "Installed: far, store."),
        ({"select": {"executor": "ray"}}, "CORE-P101", "no executor named 'ray'"),
        ({"server": {"metrics_compat": "vllm"}}, "CORE-P101", "`pip install core-plugin-vllm-flags`"),
        ({"runtime": {"plugin_options": {"inproc": {"threads": "many"}}}}, "CORE-C111", "threads: Input should be"),
        ({"runtime": {"plugin_options": {"inprok": {}}}}, "CORE-C112", "Did you mean 'inproc'?"),
    ],
)
def test_what_cannot_be_had_is_an_error_with_a_code(world, sections, code, text):
    error = fails(world, **sections)
    assert error.code == code
    assert text in str(error)


@pytest.mark.parametrize(
    ("disabled", "code", "text"),
    [
        ("host", "CORE-P202", "no platform matched. gpu (core-plugin-world 1.0): no driver."),
        (
            "platforms:host,gpu",
            "CORE-P202",
            "no platform is installed, or every one is disabled. This machine has a processor",
        ),
        ("demo", "CORE-M101", "no model was named"),
        ("txt", "CORE-M102", "none is installed"),
        ("llama", "CORE-M103", "No model implementation is installed"),
        ("inproc", "CORE-P203", "no executor is installed"),
        ("plain,quick", "CORE-P203", "no attention backend is installed"),
        ("core-plugin-world", "CORE-P202", "no platform is installed"),
    ],
)
def test_what_is_missing_is_named(world, disabled, code, text):
    error = fails(world, select={"disable_plugin": disabled.split(",")})
    assert error.code == code
    assert text in str(error)


@pytest.mark.parametrize(
    ("content", "code", "text"),
    [
        ("something else", "CORE-M102", "txt: does not recognise odd.txt"),
        ("model Llama9ForCausalLM none 1 float32", "CORE-M103", "nearest that are implemented: LlamaForCausalLM"),
        ("model GemmaForCausalLM none 1 float32", "CORE-M103", "no plugin implements architecture GemmaForCausalLM"),
        ("model LlamaForCausalLM awq 1 float32", "CORE-P203", "reads none, not awq"),
        (
            "model LlamaForCausalLM none x float32",
            "CORE-P108",
            "weight loader 'txt' (core-plugin-world 1.0): inspect() rai",
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_used(world, content, code, text):
    error = fails(world, model={"model": world.model("odd", content)})
    assert error.code == code
    assert text in str(error)


def test_a_directory_without_a_known_file_says_what_it_holds(world, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "weights.bin").touch()
    error = fails(world, model={"model": str(tmp_path / "folder")})
    assert error.code == "CORE-M102" and "It holds weights.bin." in error.message


def test_a_source_that_names_a_missing_file(world):
    (world.root / "world" / "demo.txt").unlink()
    error = fails(world)
    assert error.code == "CORE-M102" and "there is no such file" in error.message


@pytest.mark.parametrize(
    ("source", "code", "text"),
    [
        ("import no_such_library", "CORE-M101", "(acme-source 1.0) cannot be used: importing odd_impl:Odd failed"),
        (
            "class Odd:\n    def resolve(self, *a, **k):\n        raise OSError('offline')",
            "CORE-P108",
            "OSError: offline",
        ),
        (
            "class Odd:\n    def resolve(self, *a, **k):\n        return 'path'",
            "CORE-P108",
            "gave a str, not a ModelFiles",
        ),
    ],
)
def test_a_source_that_misbehaves_is_named(world, source, code, text):
    fields = {"name": "odd", "impl": "odd_impl:Odd", "api": 1, "summary": ""}
    manifest = f"from core.api import ModelSourceSpec\nODD = ModelSourceSpec(**{fields})"
    points = {"core.model_sources": {"odd": "odd_manifest:ODD"}}
    world.install("acme-source", points, {"odd_manifest": manifest, "odd_impl": source})
    resolver = Resolver(options(model={"model": "no/such"}), world.catalogue())
    with pytest.raises(CoreError) as caught:
        resolver.run()
    assert caught.value.code == code and text in str(caught.value)
    states = {row.name: row.state for row in resolver.reports[-1].rows}
    assert states == {"odd": "failed", "files": "rejected", "demo": "rejected" if code == "CORE-M101" else "ok"}


def test_a_source_name_of_two_distributions_must_be_settled(world):
    world.install("acme-demo", {"core.model_sources": {"demo": "world.manifest:DEMO"}})
    assert fails(world).code == "CORE-P102"
    assert run(world, select={"disable_plugin": ["acme-demo"]}).config.files.name == "demo"


def test_the_reports_so_far_survive_a_failure(world):
    resolver = Resolver(options(select={"executor": "ray"}), world.catalogue())
    with pytest.raises(CoreError):
        resolver.run()
    assert [report.group for report in resolver.reports][-1] == "core.executors"
    assert resolver.reports[-1].error.code == "CORE-P101"
    json.dumps([report.to_dict() for report in resolver.reports])


def test_options_of_a_plugin_are_checked_and_completed(world):
    def of(**given):
        plan = run(world, runtime={"plugin_options": given}).config.plan
        return plan.one("core.executors").options, plan.one("core.schedulers").options

    assert of() == ({"threads": 2}, {})
    assert of(inproc={"threads": "8"}, fcfs={"x": 1}) == ({"threads": 8}, {"x": 1})


def test_options_of_a_plugin_without_a_part_are_a_warning(world):
    (warning,) = run(world, runtime={"plugin_options": {"disk": {}}}).warnings
    assert "'disk', which takes no part" in warning.message


def test_a_broken_plugin_nobody_asked_for_is_a_warning(world):
    groups = {"core.executors": {"broken": "broken_manifest:X"}, "core.plugins": {"bad": "bad_mod"}}
    world.install("broken", groups, {"bad_mod": "import a_library_nobody_has"})
    resolution = run(world)
    assert resolution.config.plan.one("core.executors").name == "inproc"
    assert not resolution.config.plan.hooks
    assert [warning.code for warning in resolution.warnings] == ["CORE-P103", "CORE-P103"]
    assert fails(world, select={"executor": "broken"}).code == "CORE-P103"


def test_a_misspelt_disable_is_a_warning(world):
    (warning,) = run(world, select={"disable_plugin": ["hots"]}).warnings
    assert "'hots' is disabled, but nothing" in warning.message


def test_a_patch_is_applied_and_what_follows_from_it_is_chosen_again(world):
    add_hook(
        world,
        """
@hookimpl
def core_configure(config, facts):
    assert (config["kv"]["block_size"], config["select"]["attention_backend"]) == (32, "quick")
    assert (facts["platform"], facts["device"], facts["architecture"]) == ("host", "host", "LlamaForCausalLM")
    return [ConfigPatch(path="kv.block_size", value=8, reason="small pages")]

@hookimpl
def core_validate(config):
    assert config["kv"]["block_size"] == 8 and config["select"]["platform"] == "host"
    return [Problem(level="warning", code="ACME-1", message="slow pages")]
""",
    )
    resolution = run(world)
    assert resolution.config.block_size == 8 and resolution.config.options.kv.block_size == 8
    assert resolution.config.plan.one("core.attention_backends").name == "plain"
    assert len([one for one in resolution.reports if one.group == "core.attention_backends"]) == 1
    assert str(resolution.patches[0]) == "kv.block_size 32 -> 8 by acme-tuner 1.0: small pages"
    assert [(one.code, one.message) for one in resolution.warnings] == [("ACME-1", "slow pages")]
    assert [one.name for one in resolution.config.plan.hooks] == ["tuner"]


def test_a_patch_against_the_user_stops_the_start(world):
    patch = "ConfigPatch(path='kv.block_size', value=64, reason='r')"
    add_hook(world, f"@hookimpl\ndef core_configure():\n    return [{patch}]\n")
    assert fails(world, kv={"block_size": 16}).code == "CORE-P210"
    assert run(world).config.block_size == 64


def test_two_plugins_that_clash_stop_the_start(world):
    patch = "@hookimpl\ndef core_configure():\n    return [ConfigPatch(path='kv.block_size', value={}, reason='r')]\n"
    add_hook(world, patch.format(64), "one")
    add_hook(world, patch.format(128), "two")
    assert fails(world).code == "CORE-P211"
    assert run(world, select={"disable_plugin": ["acme-two"]}).config.block_size == 64


def test_a_problem_that_is_an_error_stops_the_start_with_its_own_code(world):
    add_hook(
        world,
        "@hookimpl\ndef core_validate():\n"
        "    return [Problem(level='error', code='ACME-2', message='too few threads', hint='Use 4.')]\n",
    )
    error = fails(world)
    assert str(error) == "ACME-2 too few threads (says tuner, acme-tuner 1.0) Use 4."


def test_a_hook_chooses_the_attention_backend(world):
    add_hook(world, "@hookimpl\ndef core_select(group):\n    return 'plain' if 'attention' in group else None\n")
    assert run(world).config.plan.one("core.attention_backends").name == "plain"


def test_the_api_key_is_shown_to_no_plugin(world):
    body = "@hookimpl\ndef core_configure(config):\n    assert 'secret' not in str(config)\n    return []\n"
    add_hook(world, body)
    assert run(world, server={"api_key": "secret"}).config.options.server.api_key == "secret"


@pytest.mark.parametrize(
    ("probe", "text"),
    [
        ("raise OSError('/dev/npu')", "raised OSError: /dev/npu"),
        ("return None", "gave a NoneType, not a ProbeResult"),
    ],
)
def test_a_probe_that_misbehaves_does_not_stop_the_others(world, probe, text):
    manifest = (
        "from core.api import PlatformSpec\nNPU = PlatformSpec(name='npu', impl='x:Y', api=2, summary='', band=4,"
        " device_type='npu', probe='npu_probe:probe', dtypes=('float16',))\n"
    )
    site_modules = {"npu_manifest": manifest, "npu_probe": f"def probe():\n    {probe}\n"}
    world.install("core-plugin-npu", {"core.platforms": {"npu": "npu_manifest:NPU"}}, site_modules)
    (warning,) = run(world).warnings
    assert warning.code == "CORE-P108" and text in warning.message and "core-plugin-npu 1.0" in warning.message
    assert fails(world, select={"platform": "npu"}).code == "CORE-P108"


@pytest.mark.parametrize(
    ("body", "state", "said"),
    [
        ("return Verdict.of('reads no wood', 'nor stone')", "rejected", "reads no wood; nor stone"),
        ("raise KeyError('bits')", "failed", "raised KeyError: 'bits'"),
        ("return True", "failed", "gave a bool, not a Verdict"),
        ("return Verdict()", "chosen", ""),
    ],
)
def test_a_quantization_method_says_which_forms_it_reads(world, body, state, said):
    manifest = "from core.api import QuantSpec\nWOOD = QuantSpec(name='wood', impl='wood.impl:X', api=2, summary='',"
    manifest += " methods={'wood'}, refine='wood.form:refine')"
    form = "from core.api import *\nseen = []\ndef refine(request, probe):\n    seen.append(request)\n    " + body
    modules = {"wood.manifest": manifest, "wood.form": form}
    world.install("acme-wood", {"core.quantization": {"wood": "wood.manifest:WOOD"}}, modules)
    resolver = Resolver(
        options(model={"model": world.model("m", "model LlamaForCausalLM wood 128 bfloat16")}),
        world.catalogue(),
    )
    if state == "chosen":
        assert resolver.run().config.plan.one("core.quantization").name == "wood"
    else:
        with pytest.raises(CoreError, match="CORE-P203") as failure:
            resolver.run()
        assert said in str(failure.value)
    rows = {row.name: row for report in resolver.reports for row in report.rows}
    assert rows["wood"].state == state and said in "; ".join(rows["wood"].reasons)
    from wood.form import seen

    assert (seen[0].method, seen[0].device_type, seen[0].dtype) == ("wood", "host", "auto")
