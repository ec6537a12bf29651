"""A tiny byte-level tokenizer, and engines that say what a script tells them."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from core.api.errors import EngineError
from core.api.shapes import ModelShape, PoolingShape
from core.api.weights import CheckpointInfo, ModelFiles
from core.config.resolved import EngineConfig, Options
from core.engine.messages import Abort, Add, Call, CallResult, Finished, Logprobs, Outputs, Ready, Started, Stats
from core.frontend.async_llm import AsyncLLM
from core.frontend.llm import LLM
from core.plugins.catalog import Catalogue
from core.plugins.kinds import KINDS
from core.plugins.plan import PlannedPlugin, PluginPlan
from core_tokenizers.fast import FastTokenizer

EOS, IM_START, IM_END = 0, 1, 2
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tokenizer(template: str | None = TEMPLATE) -> FastTokenizer:
    tokens = ["</s>", "<|im_start|>", "<|im_end|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    merges = [("l", "l"), ("ll", "o"), ("e", "n"), ("en", "d"), ("Ġ", "t")]
    tokens += ["".join(pair) for pair in merges]
    backend = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(tokens[:3])
    return FastTokenizer(backend, special={"eos_token": "</s>"}, chat_template=template, eos_ids=[EOS])


@pytest.fixture(scope="session")
def tokenizer() -> FastTokenizer:
    return make_tokenizer()


@cache
def template_engine() -> PlannedPlugin:
    """Return the engine of chat templates as plans have it."""
    return the_plugin("core.chat_templates")


def the_plugin(group: str) -> PlannedPlugin:
    """Return the only plugin of a kind as plans have it."""
    (entry,) = Catalogue.scan().entries(group)
    fields = {key: getattr(entry, key) for key in ("group", "name", "value", "dist", "version")}
    return PlannedPlugin(**fields, api=KINDS[entry.group].api)


def make_resolution(tokenizer, *, max_model_len: int = 64, generation: dict | None = None, **sections):
    path = str(Path(__file__).parent)
    checkpoint = CheckpointInfo(
        path=path, format="fake", architecture="Fake", config={}, generation_config=generation or {}
    )
    shape = ModelShape(
        vocab_size=300, max_positions=2048, num_layers=1, hidden_size=8, num_heads=1, num_kv_heads=1, head_dim=8
    )
    config = EngineConfig(
        options=Options.model_validate(sections),
        files=ModelFiles(reference="fake", path=path, name="fake-model"),
        checkpoint=checkpoint,
        shape=shape,
        plan=PluginPlan(drivers=(template_engine(),)),
        dtype="float32",
        kv_dtype="float32",
        max_model_len=max_model_len,
        block_size=16,
    )
    return SimpleNamespace(config=config, reader=SimpleNamespace(tokenizer=lambda path: tokenizer))


def pooling_config(config: EngineConfig, shape: PoolingShape) -> EngineConfig:
    """Return the configuration of an engine that pools."""
    plan = PluginPlan(drivers=(*config.plan.drivers, the_plugin("core.tasks")))
    data = shape.model_dump(mode="json")
    return config.model_copy(update={"plan": plan, "task": "pool", "task_data": data, "decodes": False})


@pytest.fixture
def pooling():
    """Return what makes an engine's configuration that of one that pools."""
    return pooling_config


class Script:
    """What the engine will say: by prompt text, or `default` for any prompt."""

    def __init__(self, tokenizer, default: str = "hello world", eos: bool = True, **by_prompt: str) -> None:
        self.tokenizer, self.default, self.by_prompt, self.eos = tokenizer, default, by_prompt, eos

    def tokens(self, prompt: list[int]) -> list[int]:
        text = self.by_prompt.get(self.tokenizer.decode(prompt), self.default)
        return self.tokenizer.encode(text, add_special_tokens=False) + [EOS] * self.eos


class Running:
    def __init__(self, message: Add, tokens: list[int]) -> None:
        self.message, self.count = message, len(message.generated) // 4
        self.left = deque(tokens[self.count :])
        self.prompt_len = len(message.prompt) // 4


class FakeCore:
    """Every step gives each running request one token, as a real engine does."""

    cached = 16

    def __init__(self, script: Script, max_model_len: int = 64) -> None:
        self.script = script
        self.ready = Ready(num_blocks=10_000, block_size=16, max_model_len=max_model_len, facts={}, timeline=[])
        self.running: dict[int, Running] = {}
        self.sent: list = []
        self.new: list[int] = []
        self.most_running = 0

    def send(self, message) -> list:
        self.sent.append(message)
        if isinstance(message, Add):
            prompt = np.frombuffer(message.prompt, dtype="<i4").tolist()
            self.running[message.handle] = Running(message, self.script.tokens(prompt))
            self.new.append(message.handle)
            self.most_running = max(self.most_running, len(self.running))
        elif isinstance(message, Abort):
            for handle in message.handles:
                self.running.pop(handle, None)
        elif isinstance(message, Call):
            if message.method == "fail":
                return [CallResult(message.number, error=EngineError("CORE-E140", "no such method").to_dict())]
            return [CallResult(message.number, [message.method, *message.args])]
        return []

    def step(self) -> Outputs:
        handles, tokens = [], []
        outputs = Outputs(stats=Stats(running=len(self.running)))
        for handle in self.new:
            if handle in self.running:
                outputs.started.append(Started(handle, self.cached))
                self._score_prompt(self.running[handle], outputs)
        self.new.clear()
        for handle, request in list(self.running.items()):
            token = request.left.popleft() if request.left else 5
            request.count += 1
            if request.message.params.logprobs is not None:
                width = request.message.params.logprobs
                ids = [token, *range(10, 10 + width)]
                outputs.logprobs[len(tokens)] = Logprobs(ids, [-0.5 * (i + 1) for i in range(len(ids))], 3)
            handles.append(handle)
            tokens.append(token)
            self._end(request, token, outputs)
        outputs.handles = np.array(handles, dtype="<i8").tobytes()
        outputs.tokens = np.array(tokens, dtype="<i4").tobytes()
        return outputs

    def _score_prompt(self, request: Running, outputs: Outputs) -> None:
        if request.message.params.prompt_logprobs is not None:
            ids = np.frombuffer(request.message.prompt, dtype="<i4").tolist()
            outputs.prompt_logprobs[request.message.handle] = [Logprobs([token], [-1.0], 1) for token in ids[1:]]

    def _end(self, request: Running, token: int, outputs: Outputs) -> None:
        message, params = request.message, request.message.params
        if token in message.stop_ids and request.count > params.min_tokens:
            stop_id = token if token in params.stop_token_ids else None
            outputs.finished.append(Finished(message.handle, "stop", stop_id))
        elif request.count >= params.max_tokens:
            outputs.finished.append(Finished(message.handle, "length"))
        else:
            return
        del self.running[message.handle]


class FakeSync:
    def __init__(self, core: FakeCore) -> None:
        self.core, self.ready, self.answers, self.closed = core, core.ready, [], 0

    def send(self, message) -> None:
        self.answers += self.core.send(message)

    def step(self) -> list:
        answers, self.answers = self.answers, []
        return answers or ([self.core.step()] if self.core.running else [])

    def close(self) -> None:
        self.closed += 1


class FakeAsync:
    """Runs when `receive` is awaited; `pause` holds it, `die` ends it."""

    def __init__(self, core: FakeCore) -> None:
        self.core, self.ready = core, core.ready
        self.answers: deque = deque()
        self.error: EngineError | None = None
        self.work = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.closed = 0

    def send(self, message) -> None:
        if self.error is not None:
            raise self.error
        self.answers += self.core.send(message)
        self.work.set()

    async def receive(self):
        while True:
            await self.gate.wait()
            if self.error is not None:
                raise self.error
            if self.answers:
                return self.answers.popleft()
            if self.core.running:
                return self.core.step()
            self.work.clear()
            await self.work.wait()

    def die(self, error: EngineError) -> None:
        self.error = error
        self.work.set()
        self.gate.set()

    def alive(self) -> bool:
        return self.error is None

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def offline(tokenizer):
    """Return a maker of `(LLM, FakeCore)`."""

    def make(default="hello world", *, by_prompt=None, eos=True, max_model_len=64, with_tokenizer=None, **resolution):
        used = with_tokenizer or tokenizer
        core = FakeCore(Script(used, default, eos, **(by_prompt or {})), max_model_len)
        return LLM.from_parts(make_resolution(used, max_model_len=max_model_len, **resolution), FakeSync(core)), core

    return make


@pytest.fixture
def online(tokenizer):
    """Return a maker of `(AsyncLLM, FakeAsync)`; call it inside a running loop."""

    def make(default="hello world", *, by_prompt=None, eos=True, max_model_len=64, **resolution):
        core = FakeCore(Script(tokenizer, default, eos, **(by_prompt or {})), max_model_len)
        engine = FakeAsync(core)
        return AsyncLLM(make_resolution(tokenizer, max_model_len=max_model_len, **resolution), engine), engine

    return make


class Engines:
    """Engines that follow each other: every one is there when the one before it has died.

    Attributes:
        made: All that came to their start's end.
        starts: What becomes of the starts, in turn: an error, an event to wait for, or None.
    """

    def __init__(self, tokenizer, default: str, max_model_len: int) -> None:
        self.script, self.max_model_len = Script(tokenizer, default, eos=False), max_model_len
        self.made: list[FakeAsync] = []
        self.starts: deque = deque()
        self.held = False

    async def start(self) -> FakeAsync:
        ending = self.starts.popleft() if self.starts else None
        if isinstance(ending, asyncio.Event):
            await ending.wait()
        elif ending is not None:
            raise ending
        engine = FakeAsync(FakeCore(self.script, self.max_model_len))
        if self.held:
            engine.gate.clear()
        self.made.append(engine)
        return engine

    @property
    def last(self) -> FakeAsync:
        return self.made[-1]


@pytest.fixture
def reviving(tokenizer):
    """Return a maker of `(AsyncLLM, Engines)`, whose engines are started again; call it inside a running loop."""

    async def make(default="hello world", *, max_model_len=64, restarts=3, **sections):
        engines = Engines(tokenizer, default, max_model_len)
        sections["runtime"] = {"engine_restarts": restarts}
        resolution = make_resolution(tokenizer, max_model_len=max_model_len, **sections)
        return AsyncLLM(resolution, await engines.start(), revive=engines.start), engines

    return make


@pytest.fixture
def resolved(tokenizer):
    """Make a resolution; options by section, as `scheduler={"max_waiting": 2}`."""

    def make(**sections):
        return make_resolution(tokenizer, **sections)

    return make
