from __future__ import annotations

import io
import json
import shlex
from types import SimpleNamespace

import pytest

from core.api.shapes import ModelShape
from core.api.weights import CheckpointInfo, ModelFiles
from core.config.resolved import EngineConfig, Options
from core.plugins.plan import PlannedPlugin, PluginPlan
from core.server.start_report import choices_rows, choices_table, ready_text, started_text
from core.terminal.progress import CountProgress, WeightProgress, counted
from core.terminal.tables import table


def plugin(group: str, name: str) -> PlannedPlugin:
    return PlannedPlugin(
        group=f"core.{group}", name=name, value="p:X", dist=f"core-plugin-{name}", version="1.2", api=1
    )


def config(**options) -> EngineConfig:
    groups = {"platforms": "cpu", "models": "llama", "quantization": "gguf", "attention_backends": "sdpa"}
    drivers = [plugin(group, name) for group, name in groups.items()]
    drivers += [plugin("kv_connectors", "a"), plugin("kv_connectors", "b"), plugin("executors", "inproc")]
    return EngineConfig(
        options=Options.model_validate(options),
        files=ModelFiles(reference="x", path="/models/x.gguf", name="x"),
        checkpoint=CheckpointInfo(
            path="/models/x.gguf", format="gguf", architecture="LlamaForCausalLM", config={}, quantization="gguf"
        ),
        shape=ModelShape.model_construct(),
        plan=PluginPlan(drivers=tuple(drivers)),
        dtype="bfloat16",
        kv_dtype="float32",
        max_model_len=2048,
        block_size=16,
    )


def rows(**options) -> dict[str, tuple[str, str]]:
    return {what: (chosen, by) for what, chosen, by in choices_rows(config(**options))}


def test_choices():
    found = rows()
    assert found["platform"] == ("cpu · core-plugin-cpu 1.2", "auto")
    assert found["model"] == ("x (/models/x.gguf)", "default")
    assert found["architecture"][0].startswith("LlamaForCausalLM (llama")
    assert found["KV connector"][0] == "a · core-plugin-a 1.2, b · core-plugin-b 1.2"
    assert found["context"] == ("2048 tokens", "auto")
    assert found["KV cache"] == ("50% of free memory, float32, blocks of 16, prefix caching", "auto")
    assert "tool parser" not in found and "scheduling policy" not in found


def test_what_the_method_of_quantization_was_told_is_said():
    resolved = config()
    drivers = [
        one.model_copy(update={"options": {"head": "int8", "exact": False}}) if one.name == "gguf" else one
        for one in resolved.plan.drivers
    ]
    told = resolved.model_copy(update={"plan": PluginPlan(drivers=tuple(drivers))})
    chosen = {what: chosen for what, chosen, _ in choices_rows(told)}["quantization"]
    assert chosen == "gguf (gguf · core-plugin-gguf 1.2): head=int8, exact=false"


def test_choices_of_the_user():
    found = rows(
        model={"model": "x", "dtype": "bfloat16"},
        select={"attention_backend": "sdpa"},
        kv={"num_blocks": 64, "prefix_caching": False},
    )
    assert [found[what][1] for what in ("model", "dtype", "attention backend", "KV cache", "batch")] == ["set"] * 4 + [
        "auto"
    ]
    assert found["KV cache"][0] == "64 blocks, float32, blocks of 16, no prefix caching"


def test_the_table_has_what_plugins_changed():
    patch = SimpleNamespace(path="kv.block_size", before=16, after=32, reason="tiles", owner="core-plugin-x 1.0")
    out = choices_table(SimpleNamespace(config=config(), patches=[patch]))
    assert "kv.block_size" in out and "32 (tiles)" in out and "core-plugin-x 1.0" in out
    lines = out.splitlines()
    assert lines[0].split() == ["what", "chosen", "by"] and set(lines[1]) == {"-", " "}


def test_table_alignment_and_safety():
    assert table(("a", "b"), [("x", "10"), ("longer", "9")], right=(1,)) == (
        "a        b\n------  --\nx       10\nlonger   9"
    )
    assert "\x1b" not in table((), [("\x1b[2Jname\n", "v")])
    assert table((), []) == ""


def test_what_the_start_found_and_took():
    text = started_text({"device": "cpu"}, [("resolve", 0.25), ("weights", 1.5)])
    assert text.splitlines()[2:] == ["device    cpu", "started in 1.75 s: resolve 0.25, weights 1.50"]
    assert started_text({}, []) == ""


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:8000", ["http://127.0.0.1:8000/v1/chat/completions"]),
        ("http://0.0.0.0:80/", ["http://127.0.0.1:80/v1/chat/completions"]),
        ("unix:/tmp/a b.sock", ["--unix-socket", "/tmp/a b.sock", "http://localhost/v1/chat/completions"]),
    ],
)
def test_the_request_to_copy(url, words):
    text = ready_text(url, "it's; $(a) model", api_key=True)
    first, command = text.splitlines()
    assert first.startswith("ready: it's; $(a) model at ")
    arguments = shlex.split(command)
    assert all(word in arguments for word in words)
    assert json.loads(arguments[-1])["model"] == "it's; $(a) model"
    assert "Authorization: Bearer $CORE_API_KEY" in arguments


def test_plain_progress_is_a_few_lines():
    stream = io.StringIO()
    with WeightProgress(stream) as progress:
        progress.update(0, 0)
        for done in range(1001):
            progress.update(done * 2**20, 1000 * 2**20)
        progress.update(1000 * 2**20, 1000 * 2**20)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 11
    assert lines[0].startswith("loading weights: 0 %") and "100 %" in lines[-1] and "1e+03 MiB" not in lines[-1]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with WeightProgress(stream) as progress:
        progress.update(1, 100)
        progress.update(50, 100)
        progress.update(100, 100)
        progress.update(100, 100)
    assert "loading weights" in stream.getvalue()


def test_a_bar_that_never_ends_is_removed(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    progress = WeightProgress(Terminal())
    with pytest.raises(ZeroDivisionError), progress:
        progress.update(1, 100)
        raise ZeroDivisionError
    assert progress._bar is None
    progress.close()


def test_a_bar_beside_a_measurement_is_drawn_by_its_steps_alone(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("core.terminal.progress._LEAST_PAUSE", 0.0)
    stream = Terminal()
    with CountProgress("batches", 3, stream, steady=False) as progress:
        assert not progress._bar.live.auto_refresh
        progress.step("first")
        drawn = stream.getvalue()
        assert "batches" in drawn and "1/3" in drawn and "first" in drawn
        progress.step()
        assert "2/3" in stream.getvalue()[len(drawn) :]


def test_a_bar_that_is_interrupted_is_gone_before_the_error_is_told(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with pytest.raises(ZeroDivisionError), counted("batches", 2) as batches:
        for _ in batches:
            raise ZeroDivisionError
    assert stream.getvalue().endswith("\x1b[2K")  # what is printed next stands on an empty line


@pytest.mark.parametrize("piped", [False, True])
def test_what_is_printed_beside_a_bar_goes_where_it_belongs(monkeypatch, piped):
    monkeypatch.setenv("TERM", "xterm")
    screen, out = Terminal(), io.StringIO() if piped else Terminal()
    monkeypatch.setattr("sys.stdout", out)
    with CountProgress("plugins", 2, screen):
        print("a finding")
    assert ("a finding" in out.getvalue()) == piped and ("a finding" in screen.getvalue()) != piped
