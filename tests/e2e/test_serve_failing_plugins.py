"""One server with a connector that cannot load, a policy that fails and a sink that sleeps: nobody else notices."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

# Room for a few requests, so that beginnings are evicted and have to be loaded again.
FLAGS = ("--threads", "1", "--dtype", "float32", "--num-blocks", "27", "--max-num-seqs", "4", "--max-model-len", "400")
PLUGINS = ("--kv-connector", "attic", "--scheduler-policy", "moody", "--stat-sink", "sleepy")

SOURCE = """
import json, time
from core.api import KVConnectorSpec, SchedulerPolicySpec, StatSinkSpec

__core_drivers__ = [
    KVConnectorSpec(name="attic", impl="failing:Attic", worker_impl="failing:AtticWorker", api=2, summary=""),
    SchedulerPolicySpec(name="moody", impl="failing:Moody", api=1, summary=""),
    StatSinkSpec(name="sleepy", impl="failing:Sleepy", api=1, summary=""),
]

class Attic:
    def __init__(self, options, *, block_size, bytes_per_block):
        self.kept, self.moves, self.loaded = set(), {"load": [], "save": []}, 0
    def match(self, hashes, local_blocks):
        found = 0
        while local_blocks + found < len(hashes) and hashes[local_blocks + found] in self.kept:
            found += 1
        return found
    def load(self, blocks):
        self.loaded += len(blocks)
        self.moves["load"] += [(ref.hash.hex(), ref.blocks) for ref in blocks]
    def save(self, blocks):
        self.moves["save"] += [(ref.hash.hex(), ref.blocks) for ref in blocks]
    def plan_step(self):
        moves, self.moves = self.moves, {"load": [], "save": []}
        return json.dumps(moves).encode() if any(moves.values()) else None
    def observe(self, report): self.kept |= {bytes.fromhex(key) for key in json.loads(report)}
    def reset(self): self.kept.clear()
    def stats(self): return {"loaded": self.loaded}

class AtticWorker:
    def __init__(self, options):
        self.store, self.saves, self.calls = {}, [], 0
    def bind(self, caches): self.caches = caches
    def begin(self, message):
        moves = json.loads(message)
        self.saves = []
        self.calls += bool(moves["load"])
        for key, (block,) in moves["load"]:
            for cache, content in zip(self.caches, self.store[key]):
                cache[block] = content
            if self.calls == 2:
                raise OSError("the attic is locked")
        self.saves = moves["save"]
        return moves["load"][-1][1] if moves["load"] and self.calls == 4 else None
    def end(self):
        for key, (block,) in self.saves:
            self.store[key] = [cache[block].clone() for cache in self.caches]
        saved, self.saves = [key for key, _ in self.saves], []
        return json.dumps(saved).encode()
    def close(self): ...

class Moody:
    def key(self, request): raise KeyError("not today")
    def victim(self, running): return 99

class Sleepy:
    def __init__(self, options): ...
    def record(self, stats): time.sleep(3)
    def finished(self, request): time.sleep(3)
    def close(self): ...
"""


def said(server, prompt):
    """Return the text of a stream."""
    body = {"prompt": prompt, "max_tokens": 40, "ignore_eos": True, "stream": True, "temperature": 0}
    pieces = []
    with server.http() as http, http.stream("POST", "/v1/completions", json=body) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                pieces += [choice["text"] for choice in event["choices"]]
    return "".join(pieces)


def faults_of(server):
    """Return what failed, by the plugin's name."""
    with server.http() as http:
        return {one["name"]: one for one in http.get("/core/plugins").json()["faults"]}


class Watching(threading.Thread):
    """Asks for `/health` until it is told to stop, and notes the seconds of each answer."""

    def __init__(self, server):
        super().__init__()
        self.server, self.stop, self.seconds = server, threading.Event(), []

    def run(self):
        with self.server.http() as http:
            while not self.stop.wait(0.02):
                began = time.monotonic()
                assert http.get("/health").status_code == 200
                self.seconds.append(time.monotonic() - began)


@pytest.mark.covers("KV-03")
def test_three_plugins_fail_beside_streaming_clients(launch, tiny, tmp_path):
    busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))  # with what else runs here
    prompts = [chr(97 + i) * 8 + "The quick brown fox jumps over the lazy dog, " * 3 for i in range(12)]
    alone = launch(str(tiny), *FLAGS).wait_ready()
    wanted = {prompt: said(alone, prompt) for prompt in prompts}
    alone.end()
    file = tmp_path / "failing.py"
    file.write_text(SOURCE)
    served = launch(str(tiny), *FLAGS, "--plugin-file", str(file), *PLUGINS).wait_ready()
    watching = Watching(served)
    watching.start()
    with ThreadPoolExecutor(3) as pool:
        began, rounds = time.monotonic(), 0
        # As long as the sink sleeps, and more; and until the connector was asked often enough to fail twice.
        while time.monotonic() - began < 4 or (faults_of(served).get("attic", {}).get("faults", 0) < 2 and rounds < 20):
            rounds += 1
            assert dict(zip(prompts, pool.map(lambda prompt: said(served, prompt), prompts), strict=True)) == wanted
    watching.stop.set()
    watching.join()
    slowest = sorted(watching.seconds)[int(len(watching.seconds) * 0.99)]
    assert len(watching.seconds) > 50 and slowest < 0.5 * busy
    faults = faults_of(served)
    assert {one["distribution"] for one in faults.values()} == {"file:failing"}
    assert faults["attic"]["faults"] == 2 and not faults["attic"]["switched_off"]
    assert "blocks could not be loaded" in faults["attic"]["last"]
    assert "KeyError: 'not today'" in faults["moody"]["last"] or "99 is none" in faults["moody"]["last"]
    assert "begin() raised OSError: the attic is locked" in served.stderr
    assert "CORE-P161 KV connector 'attic' (file:failing" in served.stderr
