from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from core import __version__
from core.api.errors import ConfigError, EngineError, RequestError
from core.cli import commands
from core.cli.commands import COMMANDS
from core.cli.main import main
from core.cli.plugin_commands import bundled, cases_of, fill
from core.config.parser import CoreParser
from core.plugins.catalog import Catalogue
from core.plugins.drivers import load_descriptors


def run(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "core.cli", *argv],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        timeout=60,
    )


def test_version_and_help_as_a_process():
    started = time.perf_counter()
    done = run("--version")
    print(f"core --version: {time.perf_counter() - started:.2f} s")
    assert (done.returncode, done.stdout) == (0, f"core {__version__}\n")
    done = run("--help")
    assert done.returncode == 0
    assert all(command in done.stdout for command in COMMANDS)


@pytest.mark.parametrize(
    "argv", [["--help"], ["--version"], ["serve", "--help"], ["bench", "--help"], ["plugins", "list"]]
)
def test_nothing_heavy_is_imported(argv):
    code = (
        "import sys, json, io, contextlib\n"
        "from core.cli.main import main\n"
        "try:\n"
        "    with contextlib.redirect_stdout(io.StringIO()): main(json.loads(sys.argv[1]))\n"
        "except SystemExit: pass\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, json.dumps(argv)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    modules = set(json.loads(done.stdout))
    assert not modules & {
        "torch",
        "triton",
        "transformers",
        "tokenizers",
        "fastapi",
        "uvicorn",
        "httpx",
        "zmq",
        "numpy",
    }
    # Only the command that was asked for is built.
    others = {module for name, (module, _) in COMMANDS.items() if name != argv[0]}
    assert not modules & others


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["serv"], ["unknown command 'serv'", "Did you mean 'serve'?"]),
        (["--nope"], ["unknown flag --nope"]),
        (["serve", "--blok-size", "1"], ["CORE-C104", "--block-size"]),
        (["serve", "--block-size", "x"], ["CORE-C101"]),
        (["serve", "-tp", "2"], ["CORE-C105"]),
        (["serve", "--config", "/nowhere.yaml"], ["CORE-C103", "/nowhere.yaml"]),
        (["config", "show", "--log-level", "loud"], ["CORE-C107", "loud"]),
        (["config", "explain", "blok-size"], ["Did you mean 'block-size'?"]),
        (["bench", "serve", "--goodput", "itl:3"], ["CORE-C108", "itl:3"]),
    ],
)
def test_wrong_usage_is_one_line_and_status_two(capsys, argv, words):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("core: CORE-C1") and err.count("\n") == 1
    for word in words:
        assert word in err


@pytest.mark.parametrize("argv", [[], ["bench"], ["--log-level", "info"]])
def test_a_command_that_needs_a_further_word_prints_its_help(capsys, argv):
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "usage: core" in out
    assert ("core bench latency --model smollm2" in out) == (argv == ["bench"])


def test_plugins_alone_lists_plugins(capsys):
    assert main(["plugins"]) == 0
    alone = capsys.readouterr().out
    assert main(["plugins", "list"]) == 0
    assert capsys.readouterr().out == alone != ""


@pytest.mark.parametrize("fails", [False, True])
def test_config_alone_shows_what_a_start_would_use_or_else_what_is_set(monkeypatch, capsys, fails):
    def resolve(options):
        if fails:
            raise EngineError("CORE-M104", "no model is given.")
        config = SimpleNamespace(
            options=options,
            plan=SimpleNamespace(one=lambda group: None),
            files=SimpleNamespace(reference="tiny", name="tiny"),
            dtype="float32",
            max_model_len=64,
            kv_dtype="float32",
            block_size=16,
        )
        return SimpleNamespace(config=config, patches=())

    monkeypatch.setattr("core.selection.resolver.resolve", resolve)
    monkeypatch.setenv("CORE_PORT", "1234")
    assert main(["config"]) == 0
    out, err = capsys.readouterr()
    found = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert found["server.port"][0] == "1234"
    assert found["model.dtype"] == (["auto", "default"] if fails else ["float32", "core"])
    assert ("core: as set, for nothing could be chosen: CORE-M104" in err) == fails


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (EngineError("CORE-E101", "the engine\ndied.", hint="Look."), 1, "core: CORE-E101 the engine died. Look."),
        (ConfigError("CORE-C101", "bad."), 2, "core: CORE-C101 bad."),
        (RequestError("too long"), 1, "core: too long"),
        (ZeroDivisionError("oops"), 1, "core: internal error: ZeroDivisionError: oops"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_statuses(monkeypatch, capsys, error, status, words):
    def fail(args):
        raise error

    monkeypatch.setattr("core.cli.env.run", fail)
    assert main(["collect-env"]) == status
    err = capsys.readouterr().err
    assert err.startswith(words) and "Traceback" not in err
    if not isinstance(error, KeyboardInterrupt):
        with pytest.raises(type(error)):
            main(["collect-env", "--debug"])
        monkeypatch.setenv("CORE_DEBUG", "1")
        with pytest.raises(type(error)):
            main(["collect-env"])


def test_a_traceback_only_with_debug():
    quiet, loud = run("serve", "--port", "x"), run("serve", "--port", "x", "--debug")
    assert quiet.returncode == 2 and "Traceback" not in quiet.stderr
    assert loud.returncode != 0 and "Traceback" in loud.stderr


def test_a_closed_pipe_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m core.cli config show | head -n 1", shell=True, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == "" and done.stdout.startswith("option")


def test_common_flags_may_stand_anywhere(capsys):
    for argv in (["--log-level", "error", "config", "show"], ["config", "--log-level", "error", "show"]):
        assert main(argv) == 0
    assert commands.command_of(["--log-format", "json", "config"]) == "config"
    capsys.readouterr()


def test_config_show(capsys, tmp_path):
    path = tmp_path / "a.toml"
    path.write_text("port = 1\n")
    argv = ["config", "show", "--set", "--json", "--config", str(path), "--api-key", "hunter2", "--opt", "a.b=1"]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "hunter2" not in out
    assert json.loads(out) == {
        "runtime.plugin_options": {"value": {"a": {"b": 1}}, "source": "flag"},
        "server.port": {"value": 1, "source": f"file {path}"},
        "server.api_key": {"value": "<hidden>", "source": "flag"},
    }
    assert main(["config", "show"]) == 0
    assert "kv.block_size" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["--gpu-memory-utilization", "kv.memory_fraction", "CORE_MEMORY_FRACTION"])
def test_config_explain(capsys, name):
    assert main(["config", "explain", name]) == 0
    out = capsys.readouterr().out
    assert "kv.memory_fraction" in out and "--memory-fraction" in out and "0.5" in out


def test_serve_hands_over_to_the_server(monkeypatch, capsys):
    import types

    seen = {}

    class Resolution:
        warnings = ()
        config = "what to run"

    class Child:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            seen["ended"] = True

        def configure(self, config):
            seen["configured"] = config

    def resolve(options, *, progress):
        seen["options"] = options
        return Resolution()

    launch = types.ModuleType("core.server.launch")

    def run(resolution, options, *, listener, child):
        assert "ended" not in seen  # the engine's process lives for as long as the server
        listener.close()
        seen.update(resolution=resolution, same=options, child=child)
        return 7

    launch.run = run
    monkeypatch.setattr("core.selection.resolver.resolve", resolve)
    monkeypatch.setattr("core.cli.serve.EngineChild", Child)
    monkeypatch.setitem(sys.modules, "core.server.launch", launch)
    monkeypatch.setattr("core.server.launch", launch, raising=False)
    assert main(["serve", "tiny", "--port", "0"]) == 7
    assert seen["options"].model.model == "tiny" and seen["options"].server.port == 0
    assert isinstance(seen["resolution"], Resolution) and seen["same"] is seen["options"]
    assert isinstance(seen["child"], Child) and seen["configured"] == "what to run" and seen["ended"]


def test_commands_of_the_bundle_are_listed_as_their_manifests_say():
    entries = {entry.name: entry for entry in Catalogue.scan().entries("core.commands")}
    listed = bundled()
    assert listed.keys() <= entries.keys()
    for candidate in load_descriptors([entries[name] for name in listed])[0]:
        assert listed[candidate.entry.name].summary == candidate.descriptor.summary
        parser = CoreParser()
        fill(candidate.entry, parser)
        assert listed[candidate.entry.name].cases == (cases_of(parser) is not None)


def test_a_command_that_is_not_installed_is_named_with_what_brings_it(monkeypatch, capsys):
    ours = [entry for entry in Catalogue.scan().every() if entry.group != "core.commands"]
    monkeypatch.setattr(Catalogue, "scan", classmethod(lambda cls, disabled=(): cls(ours, disabled)))
    assert main(["bench", "serve"]) == 2
    assert "unknown command 'bench'. 'bench' comes with core-plugin-bench" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "bench " not in capsys.readouterr().out
