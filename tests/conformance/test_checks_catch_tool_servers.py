"""Each check of tool-server clients finds the one that is wrong in its way, and none finds fault with a sound one."""

from __future__ import annotations

from string import Template

import pytest
from core_plugin_author import scaffold

from core_testing.conformance import Level

FOLDER = scaffold.files("core_plugin_author") / "templates" / "tool_servers"
WORDS = {"name": "broken", "package": "PKG", "cls": "Broken", "constant": "SPEC", "summary": "s"}

CASES = {
    "tools_are_listed_and_called": ('bool(answer["failed"])', "False"),
    "calls_overlap": (
        'answer = await self._ask("POST", {"name": name, "arguments": dict(arguments)})',
        "self.last = dict(arguments); import asyncio; await asyncio.sleep(0.01); "
        'answer = await self._ask("POST", {"name": name, "arguments": self.last})',
    ),
    "cancelled_calls_do_no_harm": (
        "response = await self._http.request(method, self._url, json=body)",
        "import asyncio\n"
        "            task = asyncio.ensure_future(self._http.request(method, self._url, json=body))\n"
        "            try:\n"
        "                response = await asyncio.shield(task)\n"
        "            except asyncio.CancelledError:\n"
        "                await self._http.aclose()\n"
        "                raise",
    ),
    "closing_leaves_nothing": (
        "        await self._http.aclose()",
        "        import asyncio\n        self.left = asyncio.create_task(asyncio.sleep(60))\n"
        "        await self._http.aclose()",
    ),
    "broken_servers_are_errors": ("({type(error).__name__})", "({error} {self._url})"),
    "redirects_betray_nothing": ("follow_redirects=False", "follow_redirects=True"),
}


@pytest.fixture
def client(make_plugin):
    def make(old: str = "", new: str = ""):
        sources = {
            name: Template((FOLDER / f"{name}.py.tmpl").read_text()).substitute(WORDS)
            for name in ("manifest", "client", "conformance")
        }
        assert old in sources["client"]
        sources["client"] = sources["client"].replace(old, new) if old else sources["client"]
        return make_plugin("core.tool_servers", sources)

    return make


def test_the_sound_one_passes(client):
    assert client().failing("tool_servers", level=Level.L1) == {}


@pytest.mark.parametrize("check", CASES)
def test_a_fault_is_found_by_its_check(client, check):
    assert [one.check for one in client(*CASES[check]).report(checks=(check,)).failures] == [check]
