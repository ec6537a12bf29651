"""A bad plugin stops the start only when it is asked for, says why with its own code, and never harms its neighbours.

Every case goes through the real `core` command, with distributions as an installer would leave them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from core_testing.tinymodels import tiny_tokenizer

CORE = Path(sys.executable).with_name("core")
PARSER = """
from core.api import ParserContext, Text

class Parser:
    def __init__(self, ctx): pass
    def feed(self, text, token_ids=()): return [Text(text)]
    def finish(self): return []
"""
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 128,
}


class World:
    """A place on `PYTHONPATH` for distributions, and a checkpoint whose facts can be read."""

    def __init__(self, root: Path) -> None:
        self.site, self.model = root / "site", root / "model"
        self.model.mkdir()
        tiny_tokenizer(self.model)
        (self.model / "config.json").write_text(json.dumps(CONFIG))
        tiny_tokenizer(self.model)
        (self.model / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")

    def install(self, dist: str, points: dict[str, dict[str, str]], **modules: str) -> None:
        """Install a distribution; its package has the distribution's name and these modules."""
        package = dist.replace("-", "_")
        info = self.site / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.0\n")
        lines = [
            line
            for group, names in points.items()
            for line in (f"[{group}]", *(f"{name} = {package}.{value}" for name, value in names.items()))
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
        (self.site / package).mkdir()
        for name, source in modules.items():
            (self.site / package / f"{name}.py").write_text(textwrap.dedent(source))

    def parser(self, dist: str, name: str, manifest: str = "", parser: str = PARSER, api: int = 1) -> None:
        """Install a tool parser."""
        package = dist.replace("-", "_")
        spec = f'from core.api import ToolParserSpec\nSPEC = ToolParserSpec(name="{name}", api={api}, summary="",\n'
        spec += f'    impl="{package}.parser:Parser")\n'
        self.install(dist, {"core.tool_parsers": {name: "manifest:SPEC"}}, manifest=manifest + spec, parser=parser)

    def attention(self, dist: str, name: str, refine: str, **more: object) -> None:
        """Install an attention backend that would win every automatic choice."""
        package = dist.replace("-", "_")
        fields = {"name": name, "api": 2, "summary": "", "band": 4, "impl": f"{package}.refine:Backend", **more}
        spec = f"""
        from core.api import AttentionSpec
        DTYPES = frozenset({{"float32", "bfloat16", "float16"}})
        SPEC = AttentionSpec(devices=frozenset({{"cpu"}}), dtypes=DTYPES, kv_dtypes=DTYPES,
                             refine="{package}.refine:refine", **{fields!r})
        """
        self.install(dist, {"core.attention_backends": {name: "manifest:SPEC"}}, manifest=spec, refine=refine)

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run `core` with these distributions in place."""
        return self.command([str(CORE), *map(str, words)])

    def command(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command with these distributions in place."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CORE_")}
        return subprocess.run(
            words,
            cwd=self.model.parent,
            env={**kept, "PYTHONPATH": str(self.site)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def why(self, *flags: str) -> dict[str, dict]:
        """Choose as `serve` would; return group -> selection."""
        done = self.run("plugins", "why", self.model, *flags, "--json")
        assert done.returncode == 0, done.stderr
        return {selection["group"]: selection for selection in json.loads(done.stdout)["selections"]}

    def refused(self, *words: str | Path, status: int = 1) -> str:
        """Run a command that must fail; return its last line, which names the cause."""
        done = self.run(*words)
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr.strip().splitlines()[-1]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def row(selection, name):
    return next(one for one in selection["candidates"] if one["name"] == name)


def test_a_name_that_two_distributions_give_is_for_the_user_to_settle(world):
    world.parser("acme-one", "twin")
    world.parser("acme-two", "twin")
    world.why()  # nobody asked for it
    line = world.refused("serve", world.model, "--tool-parser", "twin")
    assert "CORE-P102" in line
    assert "acme-one 1.0" in line
    assert "--tool-parser twin@acme-two" in line
    assert row(world.why("--tool-parser", "twin@acme-two")["core.tool_parsers"], "twin")["distribution"] == "acme-two"
    owners = [one["distribution"] for one in json.loads(world.run("plugins", "list", "--json").stdout)]
    assert {"acme-one", "acme-two"} <= set(owners)


def test_a_manifest_that_fails_is_fatal_when_asked_for_and_a_row_otherwise(world):
    world.parser("acme-ruin", "ruin", manifest="import no_such_library\n")
    world.parser("acme-good", "good")
    line = world.refused("serve", world.model, "--tool-parser", "ruin")
    for word in ("CORE-P103", "'ruin' (acme-ruin 1.0)", "no_such_library", "--tool-parser ruin"):
        assert word in line
    assert world.why("--tool-parser", "good")["core.tool_parsers"]["chosen"] == "good"
    rows = {one["name"]: one["state"] for one in json.loads(world.run("plugins", "list", "--json").stdout)}
    assert "no_such_library" in rows["ruin"]
    assert rows["good"] == "ok"


def test_an_implementation_that_fails_names_the_innermost_cause(world):
    world.parser("acme-ruin", "ruin", parser="import missing_parser_library\n")
    assert world.why("--tool-parser", "ruin")["core.tool_parsers"]["chosen"] == "ruin"  # nothing imports it to choose
    line = world.refused("serve", world.model, "--tool-parser", "ruin", "--port", "0")
    for word in ("CORE-P103", "'ruin' (acme-ruin 1.0)", "missing_parser_library"):
        assert word in line


def test_the_automatic_choice_passes_over_what_fails_and_tells(world):
    world.attention("acme-fast", "fast", refine="import missing_gpu_library\n")
    done = world.run("plugins", "why", world.model)
    assert done.returncode == 0, done.stderr
    assert "missing_gpu_library" in done.stdout
    selection = world.why()["core.attention_backends"]
    assert selection["chosen"] not in ("fast", None)
    assert (row(selection, "fast")["state"], row(selection, "fast")["code"]) == ("failed", "CORE-P103")
    line = world.refused("serve", world.model, "--attention-backend", "fast")
    assert "CORE-P103" in line
    assert "missing_gpu_library" in line


def test_a_refinement_may_refuse_with_its_reasons(world):
    refusal = "from core.api import Verdict\n"
    refusal += 'def refine(request, probe): return Verdict.of("needs a newer chip", "and luck")\n'
    world.attention("acme-picky", "picky", refine=refusal)
    line = world.refused("serve", world.model, "--attention-backend", "picky")
    assert "CORE-P201" in line
    assert "needs a newer chip; and luck" in line
    world.why("--attention-backend", "picky,torch_sdpa")  # a list takes the first that can serve


def test_a_plugin_for_another_interface_is_refused_by_number(world):
    world.parser("acme-new", "newer", api=99)
    world.attention("acme-fast", "fast", refine="", api=99)
    line = world.refused("serve", world.model, "--tool-parser", "newer")
    for word in ("CORE-P104", "acme-new 1.0", "API 99", "Upgrade core"):
        assert word in line
    selection = world.why()["core.attention_backends"]
    assert row(selection, "fast")["code"] == "CORE-P104"
    assert selection["chosen"] != "fast"


def test_a_descriptor_under_a_wrong_name_is_refused(world):
    world.parser("acme-odd", "odd")
    points = world.site / "acme_odd-1.0.dist-info" / "entry_points.txt"
    points.write_text(points.read_text().replace("odd = ", "even = "))
    line = world.refused("serve", world.model, "--tool-parser", "even")
    assert "CORE-P106" in line
    assert "'odd'" in line


def test_a_failure_in_the_engine_process_is_the_last_line_here(world):
    source = "from core.api import Verdict\n\ndef refine(request, probe):\n    return Verdict()\n"
    world.attention("acme-late", "late", refine=source, impl="acme_late.engine:Backend")
    (world.site / "acme_late" / "engine.py").write_text("import missing_kernel_library\n")
    line = world.refused("serve", world.model, "--attention-backend", "late", "--port", "0", "--num-blocks", "64")
    for word in ("CORE-P103", "'late' (acme-late 1.0)", "missing_kernel_library"):
        assert word in line


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("class Policy:\n    def key(self, request): ...\n", "it lacks victim(running)"),
        ("class Policy:\n    def key(self): ...\n    def victim(self, running): ...\n", "key(request) is called, but"),
        ("class Policy:\n    def __init__(self, limit): ...\n", "__init__() is called, but"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused_before_the_weights_are_read(world, source, told):
    spec = 'from core.api import SchedulerPolicySpec\nSPEC = SchedulerPolicySpec(name="odd", api=1, summary="", '
    spec += 'impl="acme_odd.policy:Policy")\n'
    world.install("acme-odd", {"core.schedulers": {"odd": "manifest:SPEC"}}, manifest=spec, policy=source)
    line = world.refused("serve", world.model, "--scheduler-policy", "odd", "--port", "0", "--num-blocks", "64")
    for word in ("CORE-P160", "scheduling policy 'odd' (acme-odd 1.0)", told):
        assert word in line


def test_a_plugin_that_patches_core_is_found_by_the_kit(world):
    patch = "import core.api.verdict\ncore.api.verdict.Verdict.ok = property(lambda self: True)\n"
    world.parser("acme-sly", "sly", parser=patch + PARSER)
    world.parser("acme-good", "good")
    source = """
        import json
        from core_testing.conformance import run
        plugins = [run(name, checks=["changes_nobody_elses_code"]).plugins[0] for name in ("acme-sly", "acme-good")]
        print(json.dumps([[(one.check, one.status, one.message) for one in plugin.outcomes] for plugin in plugins]))
    """
    done = world.command([sys.executable, "-c", textwrap.dedent(source)])
    (sly,), (good,) = json.loads(done.stdout)
    assert sly[:2] == ["changes_nobody_elses_code", "failed"]
    assert "core.api.verdict" in sly[2]
    assert good[:2] == ["changes_nobody_elses_code", "passed"]


HOOK = "from core.api import ConfigPatch, Problem, hookimpl\n\n"


@pytest.mark.parametrize("hook", ["core_configure", "core_validate"])
def test_a_hook_that_raises_is_named_and_can_be_switched_off(hook, world):
    source = f"{HOOK}@hookimpl\ndef {hook}(config):\n    raise KeyError('where')\n"
    world.install("acme-hooks", {"core.plugins": {"nosy": "hooks"}}, hooks=source)
    world.parser("acme-good", "good")
    line = world.refused("serve", world.model)
    for word in ("CORE-P108", "'nosy' (acme-hooks 1.0)", hook, "KeyError: 'where'"):
        assert word in line
    assert world.why("--disable-plugin", "nosy", "--tool-parser", "good")["core.tool_parsers"]["chosen"] == "good"


def test_a_hook_may_forbid_a_configuration_with_its_own_code(world):
    problem = 'Problem(level="error", code="ACME-7", message="never on a Monday", hint="Wait.")'
    source = f"{HOOK}@hookimpl\ndef core_validate(config):\n    return [{problem}]\n"
    world.install("acme-hooks", {"core.plugins": {"strict": "hooks"}}, hooks=source)
    line = world.refused("serve", world.model, status=2)
    for word in ("ACME-7", "never on a Monday", "strict, acme-hooks 1.0", "Wait."):
        assert word in line


def test_a_hook_module_that_does_not_fit_is_told_and_left_out(world):
    world.install(
        "acme-hooks", {"core.plugins": {"stray": "hooks"}}, hooks=f"{HOOK}@hookimpl\ndef core_configur():\n    pass\n"
    )
    world.install("acme-lost", {"core.plugins": {"lost": "hooks"}}, hooks="import no_such_library\n")
    done = world.run("plugins", "why", world.model)
    assert done.returncode == 0, done.stderr
    assert "CORE-P107" in done.stdout
    assert "CORE-P103" in done.stdout


def test_what_is_not_there_is_answered_with_what_is(world):
    world.parser("acme-good", "good")
    line = world.refused("serve", world.model, "--tool-parser", "goood")
    for word in ("CORE-P101", "'goood'", "Did you mean 'good'?"):
        assert word in line
    assert "CORE-P101" in world.refused("serve", world.model, "--tool-parser", "good", "--disable-plugin", "acme-good")
