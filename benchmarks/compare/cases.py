"""What is measured, of which engines, at which precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """`batch` prompts of `input_len` random tokens, `output_len` greedy tokens each, end-of-sequence ignored.

    Attributes:
        once: It takes minutes: it is run once, without a run before that warms up.
        held: The prompt has been computed before, and what is timed are the tokens after the first.
    """

    name: str
    title: str
    batch: int
    input_len: int
    output_len: int
    once: bool = False
    held: bool = False

    @property
    def fills(self) -> bool:
        """Whether the case only fills the cache."""
        return self.output_len == 1

    @property
    def tokens(self) -> int:
        """Tokens whose rate is the figure of the case: of the prompt if it only fills the cache."""
        return self.batch * (self.input_len if self.fills else self.output_len - self.held)

    @property
    def room(self) -> int:
        """Tokens that the KV cache holds at the end of the case."""
        return self.batch * (self.input_len + self.output_len)

    @property
    def unit(self) -> str:
        """Unit of the figure."""
        return "prompt tok/s" if self.fills else "output tok/s"


OFFLINE = (
    Case("decode", "(i) decode, one stream, 16 in / 128 out", 1, 16, 128),
    Case("batch", "(ii) 32 requests at once, 128 in / 128 out", 32, 128, 128),
    Case("prefill", "(iii) prefill, 1,024 in / 1 out", 1, 1024, 1),
)

CASES: Mapping[str, tuple[Case, ...]] = {
    "offline": OFFLINE,
    "streams": (Case("batch8", "8 requests at once, 128 in / 128 out", 8, 128, 128),),
    "prompts": (
        Case("prefill512", "prefill, 512 in / 1 out", 1, 512, 1),
        Case("prefill8192", "prefill, 8,192 in / 1 out", 1, 8192, 1, once=True),
    ),
    "contexts": (
        Case("decode8192", "decode, one stream, behind 8,192 tokens, 32 out", 1, 8192, 33, once=True, held=True),
        Case("decode32768", "decode, one stream, behind 32,768 tokens, 32 out", 1, 32768, 33, once=True, held=True),
    ),
}
"""Group -> its cases, run by an engine's own script in one process."""

SERVER_REQUESTS, SERVER_LENGTH, CONCURRENCIES = 32, 128, (8, 32)
RATES = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)
"""Requests per second of the plot of throughput against latency."""

GROUPS = (*CASES, "startup", "server", "engine", "overhead", "rates")


@dataclass(frozen=True)
class Variant:
    """An engine at one precision.

    Attributes:
        model: Of `models.FORMATS`.
        kv_mib: Size of the KV cache in the offline cases: 8,192 tokens at least, or the least the engine takes. That of
            a shape follows from the cases.
        flags: Further flags of `core`.
        groups: What is measured of it.
        isa: Instruction sets that the engine is held to, of `isa.CAPS`; empty: all that the processor has.

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
    isa: str = ""

    @property
    def shape(self) -> str:
        """Name of its shape, of `shapes.SHAPES`; empty for the demo model."""
        return self.model.rpartition(":")[0]

    @property
    def subject(self) -> str:
        """What it is compared on: its shape, and `@` with the instruction sets where they are bounded."""
        return f"{self.shape}@{self.isa}" if self.isa else self.shape

    def spec(self, model: str, cases: tuple[Case, ...], repeats: int, threads: int, kv_mib: int) -> dict[str, Any]:
        """Return what a runner is told."""
        longest = max(2048, *(case.input_len + case.output_len for case in cases))
        own = {"dtype": self.dtype, "kv_mib": kv_mib, "max_len": longest, "flags": list(self.flags)}
        return {
            "model": model,
            "cases": [asdict(case) for case in cases],
            "repeats": repeats,
            "threads": threads,
            **own,
        }


_SERVED = ("offline", "startup", "server")
_OTHER_FOUR_BIT = ("q4_k", "awq", "gptq", "gptq-act-order")

DEMO_VARIANTS = (
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
)
"""In the order of a round: those that are compared stand next to each other."""


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


READY_GOAL, COMMAND_GOAL = 2.0, 0.3
"""Seconds: until the server is ready, and of a command that loads no model."""

STEP_GOAL, REQUEST_GOAL, CHUNK_GOAL = 500.0, 1000.0, 30.0
"""Microseconds: schedule and settle with 1,000 running requests; CPU of the server a request, and a streamed chunk."""
