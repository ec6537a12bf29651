"""`core plugins lock` and `verify`, `--plugins-lock` and `--strict`."""

from __future__ import annotations

import importlib
import json
import re

import pytest


@pytest.fixture
def locked(site, core, tmp_path):
    site.policy("acme")
    start = ["--plugins=none", f"--plugin-file={site.world()}", "--scheduler-policy=fifo"]
    path = tmp_path / "plugins.lock"
    status, out, _ = core("plugins", "lock", path, *start)
    assert status == 0 and "9 plugins of 2 distributions" in out
    return path, start


def start(core, path, flags, *more):
    status, out, _ = core("plugins", "why", *flags, f"--plugins-lock={path}", "--json", *more)
    data = json.loads(out)
    return status, [one["message"] for one in data["warnings"] if one["code"] == "CORE-P310"], data.get("error")


def test_the_lock_is_readable_and_holds_no_options(locked, core):
    path, flags = locked
    data = json.loads(path.read_text())
    assert data["format"] == 1 and data["distributions"]["acme"] == "1.0" and len(data["digest"]) == 64
    assert {one["name"] for one in data["plugins"] if one["dist"] == "acme"} == {"fifo"}
    core("plugins", "lock", path, *flags, "--opt", "inproc.threads=77")
    assert "threads" not in path.read_text()


def test_the_same_start_agrees(locked, core):
    path, flags = locked
    assert start(core, path, flags, "--strict") == (0, [], None)


def test_a_difference_is_a_warning_and_with_strict_an_error_that_names_all(locked, core, site):
    path, flags = locked
    site.policy("other", name="lifo")
    changed = [*flags[:2], "--scheduler-policy=lifo", "--opt", "inproc.threads=3"]
    status, warnings, _ = start(core, path, changed)
    assert status == 0 and len(warnings) == 3
    status, _, error = start(core, path, changed, "--strict")
    assert status == 1 and error["code"] == "CORE-P310"
    for text in (
        "scheduling policy 'fifo' of acme 1.0 takes no part",
        "scheduling policy 'lifo' of other 1.0 is not locked",
        "the options of executor 'inproc' (file:world) differ",
    ):
        assert text in error["message"] and any(text in warning for warning in warnings)


def test_another_version_and_a_changed_file_are_named(locked, core, site):
    path, flags = locked
    info = site.root / "acme-1.0.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 2.0\n")
    world = site.root.parent / "world.py"
    world.write_text(world.read_text() + "\n#\n")
    _, warnings, _ = start(core, path, flags)
    assert any("version of scheduling policy 'fifo' (acme) is 2.0, locked 1.0" in text for text in warnings)
    assert any(f"plugin file {world} has SHA-256" in text for text in warnings)
    status, out, err = core("plugins", "verify", path)
    assert status == 0 and "differences" in out
    assert "fifo' of acme is 2.0" in err and str(world) in err


def test_verify_needs_no_start(locked, core, site):
    path, _ = locked
    assert core("plugins", "verify", path, "--strict") == (0, f"{path}: as locked\n", "")
    (site.root / "acme-1.0.dist-info" / "entry_points.txt").write_text("")
    status, out, _ = core("plugins", "verify", path, "--strict", "--json")
    assert status == 1
    assert json.loads(out)["differences"] == ["scheduling policy 'fifo' of acme 1.0 is not installed"]


def test_another_core_is_a_difference(locked, core):
    path, flags = locked
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "core": "9.9"}))
    status, _, err = core("plugins", "verify", path, "--strict")
    assert status == 1 and "locked 9.9" in err
    assert "locked 9.9" in start(core, path, flags)[1][0]


@pytest.mark.parametrize("text", [None, "not json", '{"format": 2}', "[]"])
def test_what_is_no_lock_file(core, tmp_path, text):
    path = tmp_path / "x.lock"
    if text is not None:
        path.write_text(text)
    status, _, err = core("plugins", "verify", path)
    assert status == 1 and "CORE-P311" in err and "core plugins lock" in err


def test_a_lock_that_cannot_be_written(site, core, tmp_path):
    flags = ["--plugins=none", f"--plugin-file={site.world()}"]
    status, _, err = core("plugins", "lock", tmp_path / "no" / "x.lock", *flags)
    assert status == 1 and "CORE-P311" in err


def manifest(site):
    """The module that the entry point of `acme` names."""
    text = (site.root / "acme-1.0.dist-info" / "entry_points.txt").read_text()
    return site.root / f"{re.search('= ([a-z_]+)', text)[1]}.py"


def test_the_model_is_taken_and_what_is_chosen_for_it_is_told(site, core, tmp_path):
    path, model = tmp_path / "plugins.lock", tmp_path / "mine.txt"
    model.write_text("model LlamaForCausalLM none 64 float32")
    flags = ["--plugins=none", f"--plugin-file={site.world()}"]
    status, out, _ = core("plugins", "lock", path, model, *flags)
    assert status == 0 and out.startswith("demo (LlamaForCausalLM, float32):\n")
    assert "model implementation" in out and "llama (file:world" in out
    assert json.loads(path.read_text())["model"] == str(model)
    _, warnings, _ = start(core, path, [*flags, "--opt", "inproc.threads=3"])
    assert warnings[-1].endswith(f"the file was locked for model '{model}', this start is of the default model")
    assert start(core, path, [model, *flags])[1] == start(core, path, flags)[1] == []


def test_changed_code_under_the_same_version_is_named(locked, core, site):
    path, flags = locked
    module = manifest(site)
    module.write_text(module.read_text() + "\n# changed\n")
    status, _, error = start(core, path, flags, "--strict")
    assert status == 1 and "distribution acme 1.0 has other code under the same version" in error["message"]
    status, _, err = core("plugins", "verify", path, "--strict")
    assert status == 1 and "CORE-P310 distribution acme 1.0 has other code" in err and "file:" not in err
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "code": {}}))  # as an older core wrote it
    assert start(core, path, flags, "--strict") == (0, [], None)


def test_a_distribution_whose_code_is_gone_is_named(locked, core, site):
    path, _ = locked
    manifest(site).unlink()
    importlib.invalidate_caches()
    status, _, err = core("plugins", "verify", path)
    assert status == 1 and "CORE-P175 the code of distribution acme cannot be read" in err
