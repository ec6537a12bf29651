"""What is measured, of which engines, at which precision."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """`batch` prompts of `input_len` random tokens, `output_len` greedy tokens each, end-of-sequence ignored."""

    name: str
    title: str
    batch: int
    input_len: int
    output_len: int

    @property
    def tokens(self) -> int:
        """Tokens whose rate is the figure of the case: of the prompt if it only fills the cache."""
        return self.batch * (self.input_len if self.output_len == 1 else self.output_len)

    @property
    def unit(self) -> str:
        """Unit of the figure."""
        return "prompt tok/s" if self.output_len == 1 else "output tok/s"


OFFLINE = (
    Case("decode", "(i) decode, one stream, 16 in / 128 out", 1, 16, 128),
    Case("batch", "(ii) 32 requests at once, 128 in / 128 out", 32, 128, 128),
    Case("prefill", "(iii) prefill, 1,024 in / 1 out", 1, 1024, 1),
)

SERVER_REQUESTS, SERVER_LENGTH, CONCURRENCIES = 32, 128, (8, 32)
RATES = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)
"""Requests per second of the plot of throughput against latency."""

GROUPS = ("offline", "startup", "server", "engine", "overhead", "rates")


@dataclass(frozen=True)
class Variant:
    """An engine at one precision.

    Attributes:
        model: Of `models.FORMATS`.
        kv_mib: Size of the KV cache in the offline cases: 8,192 tokens at least, or the least the engine takes.
        flags: Further flags of `core`.
        groups: What is measured of it.

    A model other than the demo one is that of a shape: `model` begins with its name and a colon.
    """

    name: str
    engine: str
    precision: str
    model: str
    dtype: str = "bfloat16"
    kv_mib: int = 192
    flags: tuple[str, ...] = ()
    groups: tuple[str, ...] = ("offline",)

    @property
    def shape(self) -> str:
        """Name of its shape, of `shapes.SHAPES`; empty for the demo model."""
        return self.model.rpartition(":")[0]

    def spec(self, model: str, repeats: int, threads: int) -> dict[str, Any]:
        """Return what a runner is told."""
        cases = [asdict(case) for case in OFFLINE]
        own = {"dtype": self.dtype, "kv_mib": self.kv_mib, "flags": list(self.flags)}
        return {"model": model, "cases": cases, "repeats": repeats, "threads": threads, **own}


def _of_shape(shape: str) -> list[Variant]:
    """Return the engines that are compared on a shape with made-up weights."""
    bf16, four_bit = f"{shape}:gguf-bf16", f"{shape}:gguf-q4_0"
    return [
        Variant(f"core-{shape}", "core", "bf16", f"{shape}:bf16"),
        Variant(f"vllm-{shape}", "vllm", "bf16", f"{shape}:bf16", kv_mib=1024),
        Variant(f"llama-{shape}", "llama", "bf16", bf16, kv_mib=64),
        Variant(f"core-{shape}-q4_0", "core", "4-bit", four_bit),
        Variant(f"llama-{shape}-q4_0", "llama", "4-bit", four_bit, kv_mib=64),
    ]


_SERVED = ("offline", "startup", "server")
_OTHER_FOUR_BIT = ("q4_k", "awq", "gptq", "gptq-act-order")

VARIANTS = (
    Variant("core-bf16", "core", "bf16", "bf16", groups=(*_SERVED, "engine", "overhead", "rates")),
    Variant("vllm-bf16", "vllm", "bf16", "bf16", kv_mib=1024, groups=(*_SERVED, "rates")),
    Variant("llama-bf16", "llama", "bf16", "gguf-bf16", kv_mib=180, groups=_SERVED),
    Variant("core-int8", "core", "int8", "bf16", flags=("--quantization", "int8"), groups=_SERVED),
    Variant("vllm-w8a8", "vllm", "int8", "w8a8", kv_mib=1024, groups=_SERVED),
    Variant("core-q8_0", "core", "int8", "gguf-q8_0", groups=_SERVED),
    Variant("llama-q8_0", "llama", "int8", "gguf-q8_0", kv_mib=180, groups=_SERVED),
    Variant("openvino-q8_0", "openvino", "int8", "gguf-q8_0", kv_mib=1024),
    Variant("core-q4_0", "core", "4-bit", "gguf-q4_0", groups=_SERVED),
    Variant("llama-q4_0", "llama", "4-bit", "gguf-q4_0", kv_mib=180, groups=_SERVED),
    Variant("openvino-q4_0", "openvino", "4-bit", "gguf-q4_0", kv_mib=1024),
    Variant("core-q4_1", "core", "4-bit", "gguf-q4_1"),
    *(Variant(f"core-{form}", "core", "4-bit", form.replace("q4_k", "gguf-q4_k")) for form in _OTHER_FOUR_BIT),
    Variant("core-w8a8", "core", "int8", "w8a8"),
    Variant("core-fp32", "core", "fp32", "bf16", dtype="float32", kv_mib=384),
    Variant("transformers-bf16", "transformers", "bf16", "bf16", kv_mib=0),
    Variant("transformers-fp32", "transformers", "fp32", "bf16", dtype="float32", kv_mib=0),
    *_of_shape("qwen3-moe"),
    *_of_shape("deepseek-lite"),
    *_of_shape("qwen3-next"),
)
"""In the order of a round: those that are compared stand next to each other."""

DEMO_VARIANTS = tuple(variant for variant in VARIANTS if not variant.shape)


@dataclass(frozen=True)
class Goal:
    """What core is to reach beside the best of its peers in one run.

    Attributes:
        figure: Of `report.figure`: a case or a figure of the server.
        factor: The ratio core / peer that is asked for: at least it for rates, at most it for times and sizes.
    """

    title: str
    figure: str
    factor: float
    ours: tuple[str, ...]
    peers: tuple[str, ...]
    lower: bool = field(default=False)


_BF16_PEERS = ("vllm-bf16", "llama-bf16", "transformers-bf16")
_INT8 = ("core-int8", "core-w8a8", "core-q8_0")

GOALS = (
    Goal("(i) bf16, beside vLLM", "decode", 1.25, ("core-bf16",), ("vllm-bf16",)),
    Goal("(i) bf16, beside llama.cpp", "decode", 1.0, ("core-bf16",), ("llama-bf16",)),
    Goal("(i) int8", "decode", 1.5, _INT8, ("llama-q8_0",)),
    Goal("(i) 4-bit", "decode", 1.3, ("core-q4_0", "core-q4_1"), ("llama-q4_0",)),
    *(Goal(f"(i) 4-bit, {form}", "decode", 1.3, (f"core-{form}",), ("llama-q4_0",)) for form in _OTHER_FOUR_BIT),
    Goal("(ii) bf16, beside the best", "batch", 1.4, ("core-bf16",), _BF16_PEERS),
    Goal("(ii) int8, beside vLLM W8A8", "batch", 1.5, _INT8, ("vllm-w8a8",)),
    Goal("(iii) bf16, beside the best", "prefill", 1.2, ("core-bf16",), _BF16_PEERS),
    Goal("(iii) int8, beside vLLM W8A8", "prefill", 1.3, _INT8, ("vllm-w8a8",)),
    *(
        Goal(f"(iv) bf16, {count} at once: {what}", f"c{count}:{key}", factor, ("core-bf16",), ("vllm-bf16",), lower)
        for count in CONCURRENCIES
        for what, key, factor, lower in (
            ("output", "output_throughput", 1.3, False),
            ("time to first token", "median_ttft_ms", 0.7, True),
            ("time per token", "median_tpot_ms", 0.8, True),
        )
    ),
    Goal("(vi) bf16: peak memory without KV, beside llama.cpp", "memory", 1.2, ("core-bf16",), ("llama-bf16",), True),
    Goal("(vi) int8: the same", "memory", 1.2, _INT8, ("llama-q8_0",), True),
    Goal("(vi) 4-bit: the same", "memory", 1.2, ("core-q4_0", "core-q4_1"), ("llama-q4_0",), True),
)


def _goals_of_shape(shape: str) -> list[Goal]:
    """Return what core is to reach on a shape."""
    ours, vllm, llama = (f"core-{shape}",), (f"vllm-{shape}",), (f"llama-{shape}",)
    four_bit = (f"core-{shape}-q4_0",), (f"llama-{shape}-q4_0",)
    return [
        Goal("(i) bf16, beside vLLM", "decode", 1.25, ours, vllm),
        Goal("(i) bf16, beside llama.cpp", "decode", 1.0, ours, llama),
        Goal("(i) Q4_0", "decode", 1.2, *four_bit),
        Goal("(ii) bf16, beside the best", "batch", 1.3, ours, (*vllm, *llama)),
        Goal("(iii) bf16, beside the best", "prefill", 1.2, ours, (*vllm, *llama)),
    ]


SHAPE_GOALS = {shape: _goals_of_shape(shape) for shape in ("qwen3-moe", "deepseek-lite", "qwen3-next")}

READY_GOAL, COMMAND_GOAL = 2.0, 0.3
"""Seconds: until the server is ready, and of a command that loads no model."""

STEP_GOAL, REQUEST_GOAL, CHUNK_GOAL = 500.0, 1000.0, 30.0
"""Microseconds: schedule and settle with 1,000 running requests; CPU of the server a request, and a streamed chunk."""
