"""Each check of parsers, connectors, weight transfer and schedulers finds the plugin that is wrong in its way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SAMPLE = """
from core.api import Text, ToolArguments, ToolEnd, ToolStart
from core_testing.conformance import ParserSample

CITY = '{"city": "Paris"}'

def samples():
    yield ParserSample(
        "one call", 'so <call>f {"a": [1, 2]}</call> ok',
        [Text("so "), ToolStart(0, "f"), ToolArguments(0, '{"a": [1, 2]}'), ToolEnd(0), Text(" ok")],
    )
    yield ParserSample("a text", f"<call>g {CITY}</call>", [ToolStart(0, "g"), ToolArguments(0, CITY), ToolEnd(0)])
"""

# A sound parser of `<call>NAME JSON</call>` that gives a call when it is complete, and keeps what is not one.
PARSER = """
import json
import re
from core.api import Reasoning, Text, ToolArguments, ToolEnd, ToolStart

OPEN, CLOSE = "<call>", "</call>"

class Parser:
    shared = []

    def __init__(self, ctx):
        self.rest, self.inside, self.pieces, self.count = "", False, [], 0
        {init}

    def feed(self, text, token_ids=()):
        {feed}
        events, self.rest = [], self.rest + text
        while self.step(events): pass
        return [event for event in events if event != Text("")]

    def step(self, events):
        tag = CLOSE if self.inside else OPEN
        at = self.rest.find(tag)
        if at < 0:
            keep = next((n for n in range(len(tag) - 1, 0, -1) if self.rest.endswith(tag[:n])), 0)
            done, self.rest = self.rest[: len(self.rest) - keep], self.rest[len(self.rest) - keep :]
            self.pieces.append(done) if self.inside else events.append(Text(done))
            return False
        done, self.rest = self.rest[:at], self.rest[at + len(tag) :]
        if self.inside: self.call("".join([*self.pieces, done]), events, CLOSE)
        else: events.append(Text(done))
        self.inside, self.pieces = not self.inside, []
        return True

    def call(self, text, events, close):
        name, _, arguments = text.partition(" ")
        try: sound = name and isinstance(json.loads(arguments), dict)
        except ValueError: sound = False
        {call}
        if sound:
            events += [ToolStart(self.count, name), ToolArguments(self.count, arguments), ToolEnd(self.count)]
            self.count += 1
        else: events.append(Text(OPEN + text + close))

    def finish(self):
        events = []
        if self.inside: self.call("".join(self.pieces) + self.rest, events, "")
        elif self.rest: events.append(Text(self.rest))
        {finish}
        return events
"""

PARSER_CASES = {
    "samples_give_their_events": {"call": "if self.count == 0 and name == 'f': name = 'g'"},
    "any_split_gives_the_same_events": {"feed": "text = 'Plain' if text == 'Plain te' else text"},
    "calls_are_well_formed": {"call": "self.count += 3 * (self.count == 2)"},
    "unfinished_calls_are_closed": {
        "call": "if not close and text == 'f {\"a\": [1, 2]}': events.append(ToolStart(self.count, 'f'))"
    },
    "plain_text_passes_unchanged": {"feed": "text = text.replace('\\u00e9', 'e')"},
    "calls_end_unfinished_thinking": {
        "init": "self.thinking = ctx.in_reasoning",
        "feed": "if self.thinking: return [Reasoning(text)] if text else []",
    },
    "values_keep_their_white_space": {"call": "arguments = arguments.replace(r'\\n ', '')"},
    "parsers_share_nothing": {
        "init": "Parser.shared.clear()",
        "feed": "Parser.shared[:-1] = []; Parser.shared.append(self); "
        "text = text if len(set(Parser.shared)) == 1 else text.upper()",
    },
    "work_is_linear": {
        "feed": "self.seen = getattr(self, 'seen', '') + text; self.seen.count('zz') if len(self.seen) > 5000 else 0"
    },
}


@pytest.fixture
def parser(make_parser):
    def make(samples: str = SAMPLE, **parts: str):
        source = PARSER
        for key in ("init", "feed", "call", "finish"):
            source = source.replace("{" + key + "}", parts.get(key, "pass"))
        return make_parser(parser=source, modules={"conformance": samples}, fields={"markers": ("<call>",)})

    return make


def test_a_sound_parser_passes(parser):
    assert parser().failing("parsers") == {}


@pytest.mark.covers("TOOL-01")
@pytest.mark.parametrize("check", PARSER_CASES)
def test_parsers(parser, check, monkeypatch):
    monkeypatch.setattr("core_testing.conformance.areas.parsers.LONG", 48 * 1024)  # growth shows in short texts too
    assert set(parser(**PARSER_CASES[check]).failing("parsers")) == {check}


def test_a_parser_without_samples_stays_below_l1(make_parser):
    report = make_parser().report("manifest", "parsers")
    states = {one.check: one.status for one in report.outcomes}
    assert states["samples_give_their_events"] == "unavailable" and report.level.name == "L0"


def test_a_module_of_samples_that_fails_is_named(parser):
    (failure,) = parser("def samples(): raise KeyError('x')").report(checks=("samples_give_their_events",)).failures
    assert "conformance.samples() raised KeyError" in failure.message


CONNECTOR_MANIFEST = """
from core.api import KVConnectorSpec

SPEC = KVConnectorSpec(name="broken", impl="PKG.store:Store", worker_impl="PKG.store:Mover", api=2, summary="s")
"""

CONNECTOR = """
from core_plugin_cpu_offload.mover import HostMover
from core_plugin_cpu_offload.store import HostStore
import torch

class Store(HostStore):
    def __init__(self, options, **sizes):
        super().__init__({"capacity": 40 * sizes["bytes_per_block"]}, **sizes)
        self.reported, self.asked = 0, 0
    {store}

class Mover(HostMover):
    {mover}
"""

CONNECTOR_CASES = {
    "saved_blocks_load_back": {
        "mover": "def bind(self, caches):\n        super().bind(caches)\n        self.loads = 0\n"
        "    def begin(self, message):\n        super().begin(message)\n"
        "        t = self._transfer\n"
        "        if len(t.loads) == 3 and [b for _, b in t.loads] == [10, 11, 12]: self._caches[1][10] = 5"
    },
    "cache_groups_load_back": {
        "mover": "def begin(self, message):\n        super().begin(message)\n"
        "        t = self._transfer\n"
        "        if len(t.loads) == 4: self._caches[0][0] = 5"
    },
    "match_has_no_side_effects": {
        "store": "def match(self, hashes, local):\n"
        "        self.asked += 1\n        return super().match(hashes, local)\n"
        "    def stats(self): return {**super().stats(), 'asked': self.asked}"
    },
    "match_counts_consecutive_blocks": {
        "store": "def match(self, hashes, local):\n"
        "        if len({h[:1] for h in hashes}) > 1: return sum(h in self._entries for h in hashes)\n"
        "        return super().match(hashes, local)"
    },
    "blocks_count_once_reported": {
        "store": "def match(self, hashes, local):\n"
        "        if len(hashes) == 2 and self._number == 1 and self._unconfirmed: return 2\n"
        "        return super().match(hashes, local)"
    },
    "failed_steps_leak_nothing": {
        "store": "def observe(self, report):\n        free = len(self._free)\n        super().observe(report)\n"
        "        if len(self._free) - free > 20: self._free.clear()"
    },
    "reset_forgets_everything": {
        "store": "def reset(self):\n        kept = dict(getattr(self, '_entries', {}))\n        super().reset()\n"
        "        self._entries.update({h: e for h, e in kept.items() if e.ready})"
    },
    "restarts_keep_the_truth": {
        "store": "def match(self, hashes, local):\n"
        "        known = super().match(hashes, local)\n"
        "        return 0 if hashes and hashes[0].startswith(b'c-') else known"
    },
    "random_operations_keep_the_truth": {
        "mover": "def begin(self, message):\n        super().begin(message)\n"
        "        t = self._transfer\n        if t.number > 60 and t.loads: self._caches[0][t.loads[0][1]] = 3"
    },
    "closes_quietly": {
        "mover": "closed = False\n    def close(self):\n        if self.closed: raise RuntimeError('closed twice')\n"
        "        self.closed = True\n        super().close()"
    },
}


LOSES_A_BLOCK = {
    "mover": "def begin(self, message):\n        super().begin(message)\n"
    "        t = self._transfer\n        return [t.loads[0][1]] if t.number > 60 and t.loads else None"
}


@pytest.mark.covers("KV-01")
@pytest.mark.parametrize(
    ("check", "wrong"), [*CONNECTOR_CASES.items(), ("random_operations_keep_the_truth", LOSES_A_BLOCK)]
)
def test_connectors(make_plugin, check, wrong):
    source = CONNECTOR
    for key in ("store", "mover"):
        source = source.replace("{" + key + "}", wrong.get(key, "pass"))
    made = make_plugin("core.kv_connectors", {"manifest": CONNECTOR_MANIFEST, "store": source})
    assert set(made.failing("connectors")) == {check}


STORE_ON_DISK = """
import json
import os
import tempfile
from pathlib import Path
import torch

def place():
    return {place}

class Store:
    def __init__(self, options, *, block_size, bytes_per_block):
        place().mkdir(parents=True, exist_ok=True)
        with open("{seen}", "a") as seen: print(place().resolve(), file=seen)
        self.moves, self.new = {"load": [], "save": []}, set()
    def match(self, hashes, local_blocks):
        found = 0
        for digest in hashes[local_blocks:]:
            if not (place() / digest.hex()).exists(): break
            found += 1
        return found
    def load(self, blocks): self.moves["load"] += [(ref.hash.hex(), ref.blocks) for ref in blocks]
    def save(self, blocks): self.moves["save"] += [(ref.hash.hex(), ref.blocks) for ref in blocks]
    def plan_step(self):
        moves, self.moves = self.moves, {"load": [], "save": []}
        return json.dumps(moves).encode() if any(moves.values()) else None
    def observe(self, report): pass
    def reset(self):
        self.moves = {"load": [], "save": []}
        for file in place().iterdir(): file.unlink()
        (place() / "reset").touch()
    def stats(self): return {}

class Mover:
    def __init__(self, options): self.saves = []
    def bind(self, caches): self.caches = caches
    def begin(self, message):
        moves = json.loads(message)
        self.saves = moves["save"]
        for key, blocks in moves["load"]:
            for cache, content in zip(self.caches, torch.load(place() / key)):
                for group, block in enumerate(blocks):
                    if block: cache[block] = content[group]
    def end(self):
        for key, blocks in self.saves:
            torch.save([cache[blocks].clone() for cache in self.caches], place() / key)
        self.saves = []
    def close(self): pass
"""
PLACES = {
    "working directory": "Path('kept-blocks')",
    "home": "Path.home() / '.acme' / 'kept-blocks'",
    "cache of the user": "Path(os.environ['XDG_CACHE_HOME']) / 'kept-blocks'",
    "temporary files": "Path(tempfile.gettempdir()) / 'kept-blocks'",
}


@pytest.mark.covers("KV-01")
@pytest.mark.parametrize("where", PLACES)
def test_every_check_of_a_connector_has_a_fresh_directory(make_plugin, where, tmp_path, monkeypatch):
    """Blocks that an earlier check or run has left would be promised before they are saved."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    source = STORE_ON_DISK.replace("{place}", PLACES[where]).replace("{seen}", str(tmp_path / "seen"))
    made = make_plugin("core.kv_connectors", {"manifest": CONNECTOR_MANIFEST, "store": source})
    checks = ("saved_blocks_load_back", "blocks_count_once_reported", "match_has_no_side_effects", "closes_quietly")
    for _ in range(2):
        assert [one.message for one in made.report(checks=checks).failures] == []
    used = set((tmp_path / "seen").read_text().split())
    assert len(used) == 2 * len(checks) and not any(Path(one).exists() for one in used)
    assert not list(tmp_path.rglob("kept-blocks")) and Path.cwd() == tmp_path and "XDG_CACHE_HOME" not in os.environ


def test_a_directory_of_a_sample_is_the_fresh_one(make_plugin):
    options = "from pydantic import BaseModel\n\nclass Options(BaseModel):\n    path: str\n    size: int = 1\n"
    sample = (
        "from core_testing.conformance import OptionsSample\n\n"
        "def samples():\n    yield OptionsSample('a path', lambda folder: {'path': str(folder / 'kept')})\n"
    )
    manifest = CONNECTOR_MANIFEST.replace("summary=", "options='PKG.options:Options', summary=")
    store = (
        CONNECTOR.replace("{store}", "pass")
        .replace("{mover}", "pass")
        .replace(
            "super().__init__(",
            "import pathlib; assert pathlib.Path(options['path']).parent == pathlib.Path.cwd(); super().__init__(",
        )
    )
    modules = {"manifest": manifest, "store": store, "options": options, "conformance": sample}
    assert make_plugin("core.kv_connectors", modules).failing("connectors") == {}


TRANSFER_MANIFEST = """
from core.api import WeightTransferSpec

SPEC = WeightTransferSpec(name="broken", impl="PKG.receiver:Receiver", sender={sender!r}, api=1, summary="s")
"""

TRANSFER = """
import torch
from core_plugin_weight_disk.receiver import DiskReceiver
{top}

class Tensor:
    def __init__(self, inner): self.inner = inner
    name = property(lambda self: self.inner.name)
    shape = property(lambda self: self.inner.shape)
    encoding = "plain"
    def raw(self): return self.inner.raw()
    def dense(self, dtype):
        value = self.inner.dense(dtype)
        {dense}
        return value

class Receiver(DiskReceiver):
    def begin(self, info):
        manifest = None
        {begin}
        manifest = super().begin(info)
        {after}
        return manifest
    def stream(self):
        found = [Tensor(one) for one in super().stream()]
        {stream}
        return iter(found)
"""

TRANSFER_CASES = {
    "manifest_is_what_comes": {
        "after": "tensors = {name: (shape, 'float64') for name, (shape, _) in manifest.tensors.items()}; "
        "manifest = manifest.model_copy(update={'tensors': tensors})"
    },
    "tensors_arrive_unchanged": {"dense": "value = value * 2 if self.name.endswith('bias') else value"},
    "version_is_reported": {"after": "manifest = manifest.model_copy(update={'version': 'v1'})"},
    "updates_follow_each_other": {
        "begin": "self.begun = getattr(self, 'begun', 0) + 1",
        "stream": "old = getattr(self, 'old', None); self.old = found; found = old or found",
        "top": "",
    },
    "missing_updates_do_no_harm": {
        "begin": "open(info['path'] + '/x' if 'no/such' in info['path'] else '/dev/null').close()"
    },
    "updates_are_visible_once_committed": {"dense": "value = value * 3 if 'layers.2.' in self.name else value"},
    "sender_needs_no_engine": {"sender": "PKG.sender:Sender"},
}


@pytest.mark.covers("WT-01")
@pytest.mark.parametrize("check", TRANSFER_CASES)
def test_transfer(make_plugin, check):
    case = {"dense": "pass", "begin": "pass", "after": "pass", "stream": "pass", "top": "", **TRANSFER_CASES[check]}
    source = TRANSFER
    for key in ("dense", "begin", "after", "stream", "top"):
        source = source.replace("{" + key + "}", case[key])
    sample = "from core_plugin_weight_disk.conformance import samples as every\n\n"
    sample += "def samples():\n    return list(every())[:1]\n"
    modules = {
        "manifest": TRANSFER_MANIFEST.format(sender=case.get("sender")),
        "receiver": source,
        "sender": "import core.engine.rows\n\nclass Sender: ...",
        "conformance": sample,
    }
    made = make_plugin("core.weight_transfer", modules)
    expected = {check, "updates_follow_each_other"} if check == "tensors_arrive_unchanged" else {check}
    assert set(made.failing("transfer")) == expected


POLICY_MANIFEST = """
from core.api import SchedulerPolicySpec

SPEC = SchedulerPolicySpec(name="broken", impl="PKG.policy:Policy", api=1, summary="s")
"""

POLICY_CASES = {
    "key_is_a_total_order": ("return (request.priority,)", "return len(running) - 1"),
    "key_is_fixed": ("return (request.num_computed, request.arrival)", "return len(running) - 1"),
    "victim_is_a_valid_index": (
        "return (request.arrival,)",
        "return len(running) if len(running) > 6 else len(running) - 1",
    ),
}


@pytest.mark.parametrize("check", POLICY_CASES)
def test_schedulers(make_plugin, check):
    key, victim = POLICY_CASES[check]
    source = f"class Policy:\n    def key(self, request): {key}\n    def victim(self, running): {victim}\n"
    made = make_plugin("core.schedulers", {"manifest": POLICY_MANIFEST, "policy": source})
    assert set(made.failing("schedulers")) == {check}


@pytest.mark.parametrize(
    ("check", "when"),
    [
        ("outputs_do_not_depend_on_the_policy", "sum(one.num_computed for one in running) > 80"),
        ("everybody_finishes", "len(running) == 2"),
    ],
)
def test_a_policy_that_loses_requests_is_caught(make_plugin, check, when):
    source = (
        "class Policy:\n    def key(self, request): return (request.arrival,)\n"
        "    def victim(self, running):\n"
        f"        if hasattr(running[0], 'status') and {when}: running[0].status = type(running[0].status).FINISHED\n"
        "        return max(range(len(running)), key=lambda i: running[i].num_computed)\n"
    )
    made = make_plugin("core.schedulers", {"manifest": POLICY_MANIFEST, "policy": source})
    assert set(made.failing("schedulers")) == {check}


@pytest.mark.parametrize("act", ["running[0].num_computed = 0", "running.reverse()"])
def test_a_policy_that_changes_what_it_reads_is_caught(make_plugin, act):
    source = (
        "class Policy:\n    def key(self, request): return (request.arrival,)\n"
        f"    def victim(self, running):\n        {act}\n        return 0\n"
    )
    made = make_plugin("core.schedulers", {"manifest": POLICY_MANIFEST, "policy": source})
    assert "victim_is_a_valid_index" in made.failing("schedulers")
