"""The engine in a process of its own: life, death, and what its client learns."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import msgspec
import numpy as np
import psutil
import pytest
import zmq

from core.api.errors import CoreError, EngineError
from core.api.sampling_params import SamplingParams
from core.config.resolved import Options
from core.engine import vitals
from core.engine.child import LOOP_STACK, STACKS
from core.engine.client import open_async
from core.engine.messages import Add, Call, CallResult, Outputs, Stats
from core.engine.runner import CoreRunner
from core.options.engine import KVOptions, RuntimeOptions
from core.options.model import ModelOptions
from core.selection.resolver import resolve
from core_testing.tinymodels import tiny_llama

WHOLE = msgspec.msgpack.encode(Outputs(handles=b"12345678", tokens=b"1234"))
WRONG = (
    b"",
    b"\x00",
    b"\xc1" * 100,
    os.urandom(4096),
    WHOLE[:-1],
    msgspec.msgpack.encode({"type": "nothing"}),
    msgspec.msgpack.encode({"type": "add", "handle": "one", "prompt": b"", "params": {}}),
    msgspec.msgpack.encode({"type": "abort", "handles": 3}),
    msgspec.msgpack.encode({"type": "call", "number": None}),
    msgspec.msgpack.encode({"type": "outputs", "handles": b"123", "tokens": b""}),
    msgspec.msgpack.encode({"type": "outputs", "handles": b"12345678", "tokens": b"", "stats": 5}),
    msgspec.msgpack.encode({"type": "failed", "error": {"what": 1}}),
    msgspec.msgpack.encode({"type": "add", "handle": -5, "prompt": bytes(8), "params": {}}),
    msgspec.msgpack.encode({"type": "add", "handle": 7, "prompt": bytes(8), "params": {"temperature": -1.0}}),
    msgspec.msgpack.encode({"type": "outputs", "handles": bytes(8), "tokens": b"\xff\xff\xff\x7f"}),
    msgspec.msgpack.encode({"type": "outputs", "finished": [[1, "tired"]]}),
    msgspec.msgpack.encode({"type": "outputs", "stats": {"steps": -1}}),
    msgspec.msgpack.encode({"type": "pulse", "stalled": -1.0}),
    b"\x91" * 100_000,
    b"\xdd\xff\xff\xff\xff",
)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    checkpoint = tiny_llama(tmp_path_factory.mktemp("models") / "llama")
    options = Options(model=ModelOptions(model=str(checkpoint), dtype="float32"), kv=KVOptions(num_blocks=32))
    return resolve(options).config


def _add(handle: int, count: int) -> Add:
    prompt = np.arange(3, 20, dtype="<i4").tobytes()
    return Add(handle=handle, prompt=prompt, params=SamplingParams(temperature=0.0, max_tokens=count))


async def _collect(engine, handle: int) -> list[int]:
    tokens: list[int] = []
    while True:
        message = await engine.receive()
        if not isinstance(message, Outputs):
            continue
        handles = np.frombuffer(message.handles, "<i8").tolist()
        tokens += [
            t for h, t in zip(handles, np.frombuffer(message.tokens, "<i4").tolist(), strict=True) if h == handle
        ]
        if any(finished.handle == handle for finished in message.finished):
            return tokens


@pytest.mark.parametrize("in_process", [True, False])
def test_requests_calls_and_orderly_end(config, in_process):
    async def scenario():
        engine = await open_async(config, in_process=in_process)
        assert engine.ready.num_blocks == 31
        engine.send(_add(1, 6))
        first = await _collect(engine, 1)
        engine.send(_add(2, 6))
        second = await _collect(engine, 2)
        assert len(first) == 6
        assert first == second
        engine.send(Call(7, "check"))
        while not isinstance(message := await engine.receive(), CallResult):
            pass
        assert (message.number, message.value, message.error) == (7, True, None)
        engine.send(Call(8, "no_such_method"))
        while not isinstance(message := await engine.receive(), CallResult):
            pass
        assert message.error["code"] == "CORE-E140"
        assert engine.alive()
        await engine.close()
        assert not engine.alive()

    asyncio.run(asyncio.wait_for(scenario(), 120))


async def _dropped(engine, count: int) -> int:
    """Wait until so many messages were dropped; return how many it says."""
    while True:
        message = await engine.receive()
        if isinstance(message, Outputs) and message.stats is not None and message.stats.dropped_messages >= count:
            return message.stats.dropped_messages


def test_messages_that_are_none_are_dropped_on_both_sides(config):
    """A stream beside them gets every token; the figures say how many there were."""

    async def scenario():
        engine = await open_async(config)
        stranger = zmq.Context.instance().socket(zmq.PUSH)
        stranger.connect(engine._child.outbox)
        try:
            engine.send(_add(1, 40))
            for data in WRONG:
                engine._inbox.send(data)
                stranger.send(data)
            tokens = await _collect(engine, 1)
            engine.send(_add(2, 40))
            assert tokens == await _collect(engine, 2) and len(tokens) == 40
            # What the other direction sends is none in this one either.
            assert await _dropped(engine, 2 * len(WRONG)) == 2 * len(WRONG)
            assert engine.alive()
        finally:
            stranger.close(linger=0)
            await engine.close()

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_requests_that_cannot_be_hurt_nobody_and_are_counted(config):
    """Well-formed messages that no client of core's sends: whoever sent them learns it, the others go on."""
    wide = SamplingParams(allowed_token_ids=[10**6])
    wrong = [
        _add(1, 3),  # while another request has that handle
        Add(handle=5, prompt=b"123", params=SamplingParams()),
        Add(handle=6, prompt=np.array([10**6], "<i4").tobytes(), params=SamplingParams()),
        Add(handle=7, prompt=np.array([-1], "<i4").tobytes(), params=SamplingParams()),
        Add(handle=8, prompt=bytes(8), params=wide),
        Add(handle=9, prompt=bytes(8), generated=b"\xff" * 4, params=SamplingParams()),
    ]

    async def scenario():
        engine = await open_async(config)
        try:
            engine.send(_add(1, 40))
            for message in wrong:
                engine.send(message)
            assert len(await _collect(engine, 1)) == 40
            assert await _dropped(engine, len(wrong)) == len(wrong)
            assert engine.alive()
        finally:
            await engine.close()

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_a_killed_engine_is_noticed_and_named(config):
    async def scenario():
        engine = await open_async(config)
        os.kill(engine.pid, signal.SIGKILL)
        with pytest.raises(EngineError, match=r"CORE-E110 .* signal 9"):
            while True:
                await engine.receive()
        assert not engine.alive()
        with pytest.raises(EngineError):
            engine.send(_add(1, 2))
        await engine.close()

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_a_start_that_fails_raises_the_childs_own_error(tmp_path):
    checkpoint = tiny_llama(tmp_path / "llama")
    config = resolve(Options(model=ModelOptions(model=str(checkpoint)), kv=KVOptions(num_blocks=32))).config
    (weights,) = checkpoint.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-64])  # cut off after the parent had looked at it

    async def scenario():
        with pytest.raises(CoreError) as caught:
            await open_async(config)
        assert caught.value.code.startswith("CORE-M")
        assert weights.name in str(caught.value)

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_a_start_that_takes_too_long_is_given_up(config):
    runtime = RuntimeOptions(start_timeout=0.05)
    slow = config.model_copy(update={"options": config.options.model_copy(update={"runtime": runtime})})

    async def scenario():
        with pytest.raises(EngineError, match="CORE-E112"):
            await open_async(slow)

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_the_engine_ends_when_its_parent_does(config):
    async def scenario():
        engine = await open_async(config)
        process = psutil.Process(engine.pid)
        engine._process.stdin.close()  # what the kernel does when the parent dies
        for _ in range(100):
            if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                break
            time.sleep(0.05)
        assert engine._process.poll() is not None or process.status() == psutil.STATUS_ZOMBIE
        await engine.close()

    asyncio.run(asyncio.wait_for(scenario(), 120))


async def _until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        await asyncio.sleep(0.05)


def _with_timeout(config, seconds):
    runtime = config.options.runtime.model_copy(update={"engine_hang_timeout": seconds})
    return config.model_copy(update={"options": config.options.model_copy(update={"runtime": runtime})})


@pytest.mark.covers("ENG-06")
def test_a_stopped_engine_is_red_and_green_again_when_it_goes_on(config, capfd):
    async def scenario():
        engine = await open_async(_with_timeout(config, 0.0))
        reader = asyncio.create_task(_read(engine))
        os.kill(engine.pid, signal.SIGSTOP)
        began = time.monotonic()
        await _until(lambda: not engine.alive())
        took = time.monotonic() - began
        os.kill(engine.pid, signal.SIGCONT)
        await _until(engine.alive)
        reader.cancel()
        await engine.close()
        return took

    took = asyncio.run(asyncio.wait_for(scenario(), 120))
    assert took > 3.5  # and, where the machine is not busy, below 5
    said = capfd.readouterr().err
    assert "Thread 0x" in said and "core/engine/runner.py" in said  # the stacks of its threads, the loop's among them


_BUSY = """
import signal, threading, time
from core.engine.child import STACKS
from core.engine.process import show_stacks_when_asked

def many(n, *args):
    made = {}
    exec("def fresh(p, q=1.0): return (p, q)", made)
    return len(made["fresh"](n)) + sum(map(lambda each: each + n, args)) + (few(n - 1) if n else 0)

def few(n):
    return many(n, 1.0, 2.0) + sum(each for each in range(n))

show_stacks_when_asked()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {STACKS})  # so that the system interrupts another thread than this
print("ready", flush=True)
while True:
    for depth in range(12):
        few(depth)
"""


@pytest.mark.covers("ENG-06")
def test_a_process_that_works_survives_that_its_stacks_are_written(tmp_path):
    with (tmp_path / "stacks").open("w+") as said:
        process = subprocess.Popen([sys.executable, "-c", _BUSY], stdout=subprocess.PIPE, stderr=said)
        try:
            assert process.stdout.readline() == b"ready\n"
            for _ in range(500):
                process.send_signal(LOOP_STACK)
                process.send_signal(STACKS)
                time.sleep(0.002)
            assert process.poll() is None
        finally:
            process.kill()
            process.communicate()
        said.seek(0)
        text = said.read()
    assert text.count("Current thread") > 5 and "in _write_stacks" in text and "in few" in text


def test_a_stopped_engine_is_ended_when_its_time_is_over(config):
    async def scenario():
        engine = await open_async(_with_timeout(config, 5.0))
        os.kill(engine.pid, signal.SIGSTOP)
        with pytest.raises(EngineError, match="CORE-E182"):
            while True:
                await engine.receive()
        await engine.close()

    asyncio.run(asyncio.wait_for(scenario(), 120))


async def _read(engine):
    while True:
        await engine.receive()


def test_an_engine_to_which_nobody_listens_is_not_called_silent(config, monkeypatch):
    monkeypatch.setattr(vitals, "SILENCE_SECONDS", 0.3)

    async def scenario():
        engine = await open_async(config)
        await asyncio.sleep(1.0)
        assert engine.alive()
        await engine.close()

    asyncio.run(asyncio.wait_for(scenario(), 120))


class _Stuck:
    """An engine whose loop is in the middle of something."""

    def __init__(self, working):
        self.stopping, self.entered, self.go_on = False, threading.Event(), threading.Event()
        self.loop = SimpleNamespace(busy=True, working=working, inflight=1, launch_wait=lambda: 0.0)
        self.scheduler = SimpleNamespace(spread=False, has_work=True)
        self.well = True

    def healthy(self):
        return self.well

    def advance(self):
        self.entered.set()
        assert self.go_on.wait(30)
        self.stopping = True
        return []

    def stats(self):
        return Stats()

    def settle_all(self):
        return []


@pytest.mark.parametrize("working", [True, False])
def test_a_pulse_says_how_long_a_turn_has_lasted_and_in_what(working):
    core = _Stuck(working)
    runner = CoreRunner(core, lambda message: None)
    thread = threading.Thread(target=runner.run)
    thread.start()
    assert core.entered.wait(30)
    first = runner.pulse()
    time.sleep(0.05)
    assert runner.pulse().stalled >= first.stalled + 0.05
    assert (runner.pulse().working, runner.pulse().healthy) == (working, True)
    core.well = False
    assert not runner.pulse().healthy
    core.go_on.set()
    thread.join(30)


class _Idle(_Stuck):
    """An engine without work whose worker is gone."""

    def __init__(self):
        super().__init__(False)
        self.loop.busy = self.scheduler.has_work = self.well = False

    def probe(self):
        raise EngineError("CORE-E130", "the worker is gone.")


def test_an_engine_without_work_finds_out_that_its_worker_is_gone():
    sent = []
    with pytest.raises(EngineError, match="CORE-E130"):
        CoreRunner(_Idle(), sent.append).run()
    assert sent == []  # nothing that would pass for a sign of life
