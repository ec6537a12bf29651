"""The public interface changes on purpose only."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest
from pydantic import BaseModel

from core.api import DESCRIPTORS
from core.plugins.kinds import KINDS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("api_snapshot", ROOT / "tools" / "api_snapshot.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_interface_is_as_recorded(tool):
    lines = tool.differences(json.loads(tool.SNAPSHOT.read_text()), tool.interface())
    message = "\n".join(lines)
    assert not lines, f"the public interface changed:\n{message}\nIf this is meant: {tool.COMMAND}"


def test_the_snapshot_reaches_every_corner(tool):
    names = tool.interface()
    for name in (
        "API core.platforms",
        "API core.plugins",
        "core.api.AttentionSpec.kv_managers",
        "core.api.AttentionSpec.name",
        "core.api.Platform.open",
        "core.api.KVSpec.window",
        "core.api.load_chosen",
        "core.api.SamplingView.extra_args",
        "core.api.CoreError.__init__",
        "core.api.CoreError.from_dict",
        "hook core_configure",
        "core_testing.tinymodels.tiny_llama",
    ):
        assert name in names
    waived = "(problem: 'Problem', options: 'Mapping[str, Any]') -> 'Waiver | None' first result"
    assert names["hook core_waive"] == waived
    assert names["core.api.Descriptor.band"] == "field Band = 2"
    assert names["core.api.Descriptor.name"] == "field str = required"


class Before(Protocol):
    def act(self, x: int) -> str: ...


class Model(BaseModel):
    a: int
    b: str = "x"


@dataclass
class Data:
    a: int
    b: tuple[int, ...] = ()


def test_every_kind_of_change_is_seen_and_readable(tool):
    old = {**tool._described("P", Before), **tool._described("M", Model), **tool._described("D", Data)}
    assert old["P.act"] == "(self, x: 'int') -> 'str'"
    assert (old["M.a"], old["M.b"]) == ("field int = required", "field str = 'x'")
    assert old["D.b"] == "field tuple[int, ...] = ()"
    new = {**old, "P.act": "(self) -> 'str'", "P.fresh": "()"}
    del new["M.b"]
    assert tool.differences(old, new) == [
        "- M.b: field str = 'x'",
        "~ P.act: (self, x: 'int') -> 'str'  ->  (self) -> 'str'",
        "+ P.fresh: ()",
    ]
    assert tool.differences(old, old) == []


def test_every_kind_of_core_has_a_descriptor_and_seven_are_stable():
    assert set(KINDS) == {*DESCRIPTORS, "core.plugins"}
    assert len([kind for kind in KINDS.values() if kind.tier == "stable"]) == 7
