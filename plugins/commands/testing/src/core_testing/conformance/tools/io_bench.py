"""An I/O processor before a model whose vectors follow from the token ids and arrays alone. Nothing is computed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import orjson
from core_plugin_pool.data import DataPooling
from core_plugin_pool.model import PooledVector, PoolingModel

from core.api.errors import PluginError
from core.api.fronts import TaskPrompt, Work
from core.api.io_processors import IOContext, IORequest
from core.api.kinds import Chosen
from core.api.shapes import PoolingShape
from core.frontend.inputs import InputProcessor
from core.plugins.drivers import describe
from core.server.pooled import written
from core_testing.conformance.outcome import Failed
from core_testing.conformance.samples import IOSample
from core_testing.conformance.subject import Subject
from core_testing.conformance.tools.tokenizers import tokenizer_of

LONGEST = 4096
SIZE = 16


class IOBench:
    """One processor, made for the model that a sample describes.

    Raises:
        Failed: It cannot be made.
    """

    def __init__(self, subject: Subject, options: Mapping[str, Any], sample: IOSample) -> None:
        tokenizer, labels = tokenizer_of(subject), tuple(sample.labels)
        shape = PoolingShape(task="classify", labels=labels, activation="softmax") if labels else PoolingShape()
        inputs = InputProcessor(tokenizer, vocab_size=tokenizer.vocab_size, max_model_len=LONGEST)
        self.pooler = PoolingModel("kit", shape, inputs, SIZE)
        context = IOContext(
            model_name="kit",
            model_config=dict(sample.model_config),
            tasks=self.pooler.encodings,
            labels=labels,
            max_model_len=LONGEST,
            tokenizer=tokenizer,
            options=dict(options),
        )
        try:
            processor = subject.impl()(context)
        except Exception as error:
            raise Failed(f"its constructor raised {type(error).__name__}: {error}") from error
        self._line = DataPooling(Chosen("kit", "'kit'", subject.descriptor, processor, blame=_raised), self.pooler)
        self.seen: list[Work[Any]] = []

    def answer(self, data: Any) -> bytes:
        """Return what a client gets for `data`, as JSON. Raises `RequestError` or, if the plugin fails, `Failed`."""
        try:
            return written(self._line.run_now(IORequest("kit-1", _copied(data)), self._pool).answer)
        except PluginError as error:
            raise Failed(error.message) from error

    def _pool(self, work: Work[Any]) -> list[Any]:
        self.seen.append(work)
        return work.finish([PooledVector(self._vector(prompt)) for prompt in work.prompts])

    def _vector(self, prompt: TaskPrompt) -> np.ndarray:
        seed = hashlib.sha256(msgspec.msgpack.encode((prompt.ids, prompt.part))).digest()
        rows = (len(prompt.ids),) if prompt.part.method == "all" else ()
        random = np.random.default_rng(int.from_bytes(seed[:8], "little"))
        return random.standard_normal((*rows, self.pooler.size)).astype(np.float32)


def _raised(what: str, error: BaseException) -> PluginError:
    return PluginError("CORE-P108", f"I/O processor 'kit': {what} raised {describe(error)}.")


def _copied(data: Any) -> Any:
    """Return data as it comes over the network: what one request does to it, the next one does not see."""
    return orjson.loads(orjson.dumps(data))
