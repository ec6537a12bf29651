"""Every plugin of the repository and every example passes the kit that strangers use, by the command they run."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(3200)  # the first test runs the kit over all plugins
UNAVAILABLE = {"a_declared_accelerator_is_here"}
"""What a machine without accelerators cannot check."""


BELOW_L1 = dict.fromkeys(
    ("scripted", "llama-pooling", "colbert", "gte-new"), "there is no tiny configuration for any of its architectures"
)
"""What stays at L0, and why: transformers has no such model, or the kit none so small; `tests/engine/pooling` compares
what pools."""


LIBRARIES = {
    f"core-plugin-{name}" for name in ("aiter", "deepgemm", "flash-attn", "flashinfer", "flashmla", "xpu-kernels")
}
"""Their libraries are made for cards, and are not here: `tests/seams` holds them to stand-ins."""

OF_LIBRARIES = {"requirements_are_met", "loads_in_a_spawned_process"}
"""What cannot pass without the library; other checks may lack weights in blocks of 128, which the kit does not make."""


HELD_ELSEWHERE = {
    tomllib.loads((rows.parents[1] / "pyproject.toml").read_text())["project"]["name"]
    for rows in ROOT.glob("plugins/models/*/tests/rows.py")
}
"""Families of which the kit has no tiny configuration: `tests/engine/families` holds every row of them to transformers,
or to a reference, in more ways than the kit does."""


def _entries(pattern: str) -> list[tuple[str, str, str]]:
    """Return `(group, name, distribution)` of every entry point of these projects."""
    found = []
    for path in sorted(ROOT.glob(pattern)):
        project = tomllib.loads(path.read_text())["project"]
        for group, entries in project.get("entry-points", {}).items():
            found += [(group, name, project["name"]) for name in entries if group.startswith(("core.", "acme."))]
    return found


PLUGINS = _entries("plugins/*/*/pyproject.toml")
INTERPRETED = [one for one in PLUGINS if one[2] == "core-plugin-kernels-triton" and one[0] != "core.commands"]
"""Those whose kernels run in Triton's interpreter here."""
EXAMPLES = _entries("examples/plugins/*/pyproject.toml")


@pytest.mark.covers("PLAT-01", "ATTN-01", "KV-01", "TOOL-01", "WT-01")
@pytest.mark.parametrize(
    ("group", "name", "dist"), [one for one in [*PLUGINS, *EXAMPLES] if one not in INTERPRETED], ids=lambda value: value
)
def test_the_plugin_passes(kit_report, group, name, dist):
    passes(kit_report, group, name, dist)


@pytest.mark.exhaustive
@pytest.mark.covers("PLAT-03", "ATTN-05")
@pytest.mark.parametrize(("group", "name", "dist"), INTERPRETED, ids=lambda value: value)
def test_the_plugin_passes_in_the_interpreter(interpreted_kit_report, group, name, dist):
    passes(interpreted_kit_report, group, name, dist)


def passes(report, group, name, dist):
    """Hold what the kit says of one plugin against what it should."""
    mine = [one for one in report["plugins"] if (one["group"], one["name"], one["distribution"]) == (group, name, dist)]
    assert len(mine) == 1, f"{dist} is not installed"
    because = BELOW_L1.get(name)
    checks = [one for one in mine[0]["checks"] if one["check"] not in UNAVAILABLE and one["message"] != because]
    if dist in LIBRARIES:
        checks = [one for one in checks if one["check"] not in OF_LIBRARIES and one["status"] != "unavailable"]
    excused = [one for one in checks if dist in HELD_ELSEWHERE and "no tiny configuration" in one["message"]]
    checks = [one for one in checks if one not in excused]
    assert [f"{one['check']}: {one['message']}" for one in checks if one["status"] not in ("passed", "skipped")] == []
    if not excused and dist not in LIBRARIES:
        assert mine[0]["level"] == max(one["level"] for one in checks if one["status"] == "passed")


@pytest.mark.exhaustive
def test_every_parser_passes_what_takes_long(long_kit_report):
    parsers = [one for one in long_kit_report["plugins"] if one["checks"]]
    assert {one["group"] for one in parsers} == {"core.tool_parsers"}
    assert len(parsers) == sum(group == "core.tool_parsers" for group, _, _ in [*PLUGINS, *EXAMPLES])
    made = [(one["name"], check["check"], check["status"]) for one in parsers for check in one["checks"]]
    assert len(made) == 2 * len(parsers) and [one for one in made if one[2] != "passed"] == []


def test_the_report_says_what_it_holds_for(kit_report):
    assert kit_report["versions"].keys() >= {"core", "python", "torch"}
    assert kit_report["format"] == 1


def test_the_report_says_where_the_time_went(kit_report):
    spent = kit_report["seconds"]
    assert list(spent.values()) == sorted(spent.values(), reverse=True)
    assert {"attention", "kernels", "executors"} <= spent.keys()
    total = sum(one["seconds"] for plugin in kit_report["plugins"] for one in plugin["checks"])
    assert sum(spent.values()) == pytest.approx(total, abs=0.6)
