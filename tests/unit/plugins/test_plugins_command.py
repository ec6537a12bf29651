from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys

import pytest

from core.api.errors import CoreError
from core.cli import plugins
from core.config.parser import CoreParser
from core.plugins.catalog import Catalogue

BUDGET = """
import sys, time
began = time.process_time()
from core.cli.main import main
status = main(["plugins", "list"])
took = time.process_time() - began
heavy = [name for name in ("torch", "triton", "transformers", "fastapi", "numpy") if name in sys.modules]
print("RESULT", status, ",".join(heavy) or "none", took)
"""


@pytest.fixture
def world(site, monkeypatch):
    site.install_world()
    site.install("broken", {"core.executors": {"ruin": "ruin_mod:X"}, "core.grammars": {"g": "g:G"}})
    site.install("acme-hooks", {"core.plugins": {"watch": "watch_mod"}}, {"watch_mod": "raise OSError"})
    catalogue = site.catalogue()
    monkeypatch.setattr(Catalogue, "scan", classmethod(lambda cls, disabled=(): catalogue.without(disabled)))
    monkeypatch.setattr("core.selection.resolver.Catalogue", Catalogue)
    for name in list(os.environ):
        if name.startswith("CORE_"):
            monkeypatch.delenv(name)
    return site


def run(capsys, *words):
    parser = CoreParser()
    plugins.register(parser.add_subparsers(parser_class=CoreParser))
    args = parser.parse_args(["plugins", *words])
    status = args.run(args)
    return status, capsys.readouterr().out


def test_the_list_shows_every_plugin_and_its_state(world, capsys):
    status, text = run(capsys, "list", "--json")
    rows = {(row["kind"], row["name"]): row for row in json.loads(text)}
    assert status == 0
    assert rows["platform", "gpu"] == {
        "kind": "platform",
        "name": "gpu",
        "distribution": "core-plugin-world",
        "version": "1.0",
        "api": 2,
        "maturity": "stable",
        "state": "ok",
    }
    assert rows["executor", "ruin"]["state"].startswith("failed: it failed to import: ModuleNotFoundError")
    assert rows["hook plugin", "watch"]["state"] == "not loaded"
    assert rows["core.grammars", "g"]["state"].startswith("unknown kind")
    assert len(rows) == 18


@pytest.mark.parametrize("kind", ["core.executors", "executors", "executor"])
def test_the_list_of_one_kind(world, capsys, kind):
    _, text = run(capsys, "list", "--kind", kind)
    assert text.splitlines()[0].split() == ["kind", "name", "distribution", "version", "api", "maturity", "state"]
    assert [line.split()[1] for line in text.splitlines()[2:]] == ["inproc", "ruin"]


def test_an_unknown_kind_is_refused_with_a_suggestion(world, capsys):
    with pytest.raises(CoreError, match="Did you mean 'platforms'"):
        run(capsys, "list", "--kind", "platfroms")


def test_info_shows_the_descriptor_and_the_options(world, capsys):
    _, text = run(capsys, "info", "inproc")
    assert "world.impl:Executor" in text and "core.executors world.manifest:INPROC" in text
    assert "option threads  2" in text


def test_info_of_a_broken_plugin_tells_why(world, capsys):
    _, text = run(capsys, "info", "executors:ruin@broken", "--json")
    assert json.loads(text)[0]["state"].startswith("failed")


def test_info_of_nothing_suggests_a_name(world, capsys):
    with pytest.raises(CoreError, match=r"no plugin named 'inporc'.*Did you mean 'inproc'"):
        run(capsys, "info", "inporc")


def test_why_explains_every_selection(world, capsys):
    status, text = run(capsys, "why", "--disable-plugin", "watch", "--attention-backend", "plain")
    assert status == 0
    assert "attention backend (host, head_dim 64" in text and "as asked" in text
    assert "no driver" in text and "warning: CORE-P103" in text


def test_why_as_data(world, capsys):
    _, text = run(capsys, "why", "demo", "--json", "--block-size", "48")
    data = json.loads(text)
    assert data["config"] == {"dtype": "bfloat16", "kv_dtype": "bfloat16", "max_model_len": 128, "block_size": 48}
    assert len(data["selections"]) == 8 and len(data["plan"]["digest"]) == 64


def test_why_shows_the_reports_before_a_failure(world, capsys):
    with pytest.raises(CoreError, match="CORE-P101 no executor named 'ray'"):
        run(capsys, "why", "--executor", "ray")
    assert "platform" in capsys.readouterr().out
    status, text = run(capsys, "why", "--executor", "ray", "--json")
    data = json.loads(text)
    assert status == 1 and data["error"]["code"] == "CORE-P101"
    assert data["selections"][0]["chosen"] == "host"


def test_the_flags_of_why_are_those_of_serve(world, capsys):
    with pytest.raises(CoreError, match="attention-backend"):
        run(capsys, "why", "--attention-backnd", "plain")


def test_register_fits_a_plain_argument_parser():
    parser = argparse.ArgumentParser()
    plugins.register(parser.add_subparsers())
    assert parser.parse_args(["plugins", "list"]).run is plugins.listing.run_list


def test_listing_imports_no_device_library_and_is_quick():
    runs = [
        subprocess.run([sys.executable, "-c", BUDGET], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    ]
    results = [text.splitlines()[-1].split() for text in runs]
    assert all(result[:3] == ["RESULT", "0", "none"] for result in results)
    assert min(float(result[3]) for result in results) < 1.0  # of a processor; the aim is 0.3 s
