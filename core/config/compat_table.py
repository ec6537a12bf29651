"""What vLLM's flags mean here, as data. `docs/vllm-flags.md` is written from it."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Foreign:
    """A flag that is no option here, however it is spelled.

    Attributes:
        names: Spellings, with dashes. A switch has a `--no-` form of each.
        why: What to say when it is refused, and in the documentation.
        takes: How many values follow; 0 for a switch (its values are `true` and `false`), -1 for any number.
        fine: Values that ask for what happens anyway; `*` stands for all.
        needs: `fine` holds only beside one of these flags.
        same: A flag of ours; a value that it has as well is accepted.
        words: Value (or `*`) -> what to read in its place, `{}` being the value.
    """

    names: tuple[str, ...]
    why: str
    takes: int = 1
    fine: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    same: str = ""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def _one(names: str, why: str, *fine: str, **more: tuple[str, ...]) -> Foreign:
    return Foreign(tuple(names.split()), why, 1, fine, words=more)


def _repeats(name: str, flag: str, why: str) -> Foreign:
    """A flag that may say again what one of ours says."""
    return Foreign((name,), why, same=flag)


def _many(names: str, why: str) -> tuple[Foreign, ...]:
    """Flags refused with one sentence, a row for each."""
    return tuple(Foreign((name,), why) for name in names.split())


def _switch(names: str, why: str, *fine: str, needs: tuple[str, ...] = (), **words: tuple[str, ...]) -> Foreign:
    return Foreign(tuple(names.split()), why, 0, fine, needs, words=words)


def _switches(names: str, why: str) -> tuple[Foreign, ...]:
    """Switches that are off here for good, a row for each: `--no-x` is accepted."""
    return tuple(Foreign((name,), why, 0, ("false",)) for name in names.split())


_WORKERS = "This version runs one worker on one device: leave it at 1."
_NODES = "This version runs on one node."
_GRAPHS = "--graphs says which steps run by captured graphs, the platform's graph_sizes and graph_tokens which sizes."
_COMPILED = "--compile compiles the model, --graphs says which steps run by captured graphs."
_DRAFTS = "Speculative decoding is chosen with --drafter NAME (see `core plugins list`) and --draft-tokens N."
_LORA = "LoRA adapters are not available in this version."
_TEXT = "This version takes text only."
_HEAD = "The head of a request may have 64 KiB and 128 headers; these limits are fixed."
_CONNECTOR = "Use --kv-connector NAME and --opt NAME.KEY=VALUE."
_CODE = "Code that a flag names is not run; install a plugin instead (`core plugins list`)."
_ONE_TOKENIZER = "The tokenizer is the checkpoint's own."
_HF_CONFIG = "The configuration is the checkpoint's own; --hf-overrides replaces values of it."
_TRACES = "Traces are not exported; install a stat sink (--stat-sink) for figures."
_DEFAULTS = "Sampling defaults are those of the checkpoint's generation_config.json; requests override them."
_CHUNKS = "Prompts are always computed in chunks; --max-num-batched-tokens and --max-chunk set their size."

_MODEL = (
    _one("--tokenizer", _ONE_TOKENIZER),
    _one("--tokenizer-mode", _ONE_TOKENIZER, "auto", "hf"),
    _repeats("--tokenizer-revision", "--revision", _ONE_TOKENIZER + " --revision names the revision of both."),
    _switch("--skip-tokenizer-init", _ONE_TOKENIZER + " It is always loaded.", "false"),
    _switch("--trust-remote-code", "Code from a checkpoint is never run; install a model plugin instead.", "false"),
    _one("--code-revision", "Code from a checkpoint is never run, of whichever revision.", "*"),
    _one("--hf-config-path", _HF_CONFIG),
    _one("--config-format", _HF_CONFIG, "auto", "hf"),
    _one("--rope-theta", """Use --hf-overrides '{"rope_theta": X}'."""),
    _one("--generation-config", _DEFAULTS, "auto"),
    _one("--override-generation-config", _DEFAULTS),
    _one(
        "--task",
        "Use --runner.",
        "auto",
        generate=("--runner", "generate"),
        embed=("--runner", "pooling", "--convert", "embed"),
    ),
    _one("-q", "", **{"*": ("--quantization", "{}")}),
)
_MEMORY = (
    _one("--cpu-offload-gb", "Weights stay on the device; for the KV cache see --kv-connector.", "0", "0.0"),
    _one("--swap-space", "Preempted requests are computed again; for the KV cache see --kv-connector.", "0", "0.0"),
    _one(
        "--kv-offloading-size",
        "GiB of host memory: the KV connector cpu_offload.",
        **{"*": ("--kv-connector", "cpu_offload", "--opt", "cpu_offload.capacity={}GiB")},
    ),
    _one("--kv-offloading-backend", "The KV connector cpu_offload does it; for others see --kv-connector.", "native"),
    _one(
        "--prefix-caching-hash-algo",
        "Blocks are hashed with keyed BLAKE2b; --hash-seed makes the hashes equal in every start.",
    ),
    _switch("--calculate-kv-scales", "Scales of an fp8 KV cache are those of the checkpoint, or 1.", "false"),
    _switch("--enable-sleep-mode", "A server that sleeps is not available: stop it and start it again.", "false"),
)
_SCHEDULING = (
    _switch("--enable-chunked-prefill", _CHUNKS, "true"),
    _one("--max-num-partial-prefills", _CHUNKS),
    _one("--max-long-partial-prefills", _CHUNKS),
    _one("--max-num-queued-tokens", "The queue is bounded in requests: --max-waiting."),
    _switch(
        "--async-scheduling",
        "Steps always overlap; --overlap-depth sets how far, 0 switches it off.",
        "true",
        false=("--overlap-depth", "0"),
    ),
    _one("--watermark", "A hundredth of the KV blocks stays free at admission.", "0.01"),
    _one("--scheduler-cls", _CODE + " The order of requests is --scheduling-policy."),
)
_PARALLEL = (
    _one("--tensor-parallel-size -tp", _WORKERS, "1"),
    _one("--pipeline-parallel-size -pp", _WORKERS, "1"),
    _one("--data-parallel-size -dp", _WORKERS, "1"),
    _one("--decode-context-parallel-size -dcp", _WORKERS, "1"),
    _one("--prefill-context-parallel-size -pcp", _WORKERS, "1"),
    _one("--data-parallel-size-local -dpl", _WORKERS, "1"),
    _one("--data-parallel-rank -dpn", _WORKERS, "0"),
    _one("--data-parallel-start-rank -dpr", _WORKERS, "0"),
    *_many("--data-parallel-address --data-parallel-rpc-port --data-parallel-backend", _WORKERS),
    _switch("--enable-expert-parallel -ep", _WORKERS, "false"),
    _switch("--enable-eplb", _WORKERS, "false"),
    _switch("--enable-dbo", _WORKERS, "false"),
    _switch("--disable-custom-all-reduce", _WORKERS, "true"),
    _one(
        "--distributed-executor-backend",
        "Name the plugin instead: --executor NAME (see `core plugins list`).",
        "uni",
        "mp",
    ),
    _one("--nnodes -n", _NODES, "1"),
    _one("--node-rank -r", _NODES, "0"),
    _one("--master-addr", _NODES, "127.0.0.1", "localhost"),
    _one("--master-port", _NODES),
    _switch("--headless", _NODES + " The engine always has a server in front of it.", "false"),
    _one("--api-server-count -asc", "One process serves HTTP.", "1"),
    _switch("--grpc", "The server speaks HTTP; routes of plugins are added with --route.", "false"),
)
_COMPILE = (
    _switch("--enforce-eager", _GRAPHS, "false", true=("--graphs", "none")),
    _one("--compilation-config -cc", _COMPILED),
    Foreign(
        ("--optimization-level", "-O"),
        _COMPILED,
        words={
            "0": ("--no-compile", "--graphs", "none"),
            "1": ("--compile", "--graphs", "decode"),
            **dict.fromkeys("23", ("--compile", "--graphs", "full")),
        },
    ),
    _one("--max-seq-len-to-capture", _GRAPHS),
    _one(
        "--performance-mode",
        "--max-itl-ms, --max-num-seqs and --max-num-batched-tokens trade latency for throughput.",
        "balanced",
    ),
)
_SPECULATION = (
    _one("--speculative-config -sc", _DRAFTS),
    *_many("--spec-method --spec-model --spec-tokens", _DRAFTS),
)
_ADAPTERS = (
    _switch("--enable-lora", _LORA, "false"),
    Foreign(("--lora-modules",), _LORA, -1),
    *_many("--max-loras --max-lora-rank --max-cpu-loras --lora-dtype", _LORA),
)
_CHAT = (
    _switch(
        "--enable-auto-tool-choice",
        "Give --tool-parser NAME beside it: tool calls are then parsed whenever tools are sent.",
        "true",
        "false",
        needs=("--tool-parser", "--tool-call-parser"),
    ),
    _one("--tool-parser-plugin", "Tool parsers are installed distributions; see `core plugins list`."),
    _one("--reasoning-parser-plugin", "Reasoning parsers are installed distributions; see `core plugins list`."),
    _one("--tool-server", "Name MCP servers with --mcp-server LABEL=URL (docs/responses.md)."),
    _one("--response-role", "Answers have the role assistant.", "assistant"),
    _switch("--enable-force-include-usage", "A stream ends with its usage on stream_options.include_usage.", "false"),
    _switch("--enable-prompt-tokens-details", "usage.prompt_tokens_details is always there.", "true"),
    _switch(
        "--exclude-tools-when-tool-choice-none", "The template is given no tools when tool_choice is none.", "true"
    ),
    *_many(
        "--structured-outputs-config --guided-decoding-backend", "Use --structured-output NAME (`core plugins list`)."
    ),
    Foreign(("--logits-processors",), "Use --logits-processor NAME (`core plugins list`).", -1),
)
_MEDIA = (
    *_many("--limit-mm-per-prompt --allowed-local-media-path --mm-processor-kwargs --media-io-kwargs", _TEXT),
    Foreign(("--allowed-media-domains",), _TEXT, -1),
    _switch("--language-model-only", _TEXT, "true"),
)
_HTTP = (
    _one("--middleware", _CODE),
    _switch("--disable-fastapi-docs", "There are no interactive pages; /openapi.json has the routes.", "true"),
    *_many("--h11-max-incomplete-event-size --h11-max-header-count", _HEAD),
    _one("--sse-keep-alive-interval", "Streams carry events only.", "0"),
    _switch("--enable-request-id-headers", "Every answer has X-Request-Id.", "true"),
    _switch("--enable-server-load-tracking", "/load always answers.", "true"),
    _switch("--disable-uvicorn-access-log", "There is none; --log-requests logs one line per request.", "true"),
    _one("--uvicorn-log-level", "Use --log-level."),
)
_OBSERVING = (
    _switch("--disable-log-stats", "Figures are not logged; /metrics has them.", "true"),
    _switch("--disable-log-requests", "", true=("--no-log-requests",), false=("--log-requests",)),
    _switch("--enable-log-outputs", "Answers are never logged.", "false"),
    _one("--max-log-len", "Neither prompts nor answers are logged.", "*"),
    *_many("--otlp-traces-endpoint --collect-detailed-traces", _TRACES),
    _one(
        "--show-hidden-metrics-for-version",
        "No metric is hidden: /metrics has them all, and by vLLM's names with --metrics-compat vllm.",
    ),
    _one("--profiler-config", "POST /start_profile and /stop_profile time the phases of steps."),
    _one("--additional-config", "Options of plugins are --opt NAME.KEY=VALUE."),
)
_TRANSFER = (
    _one("--kv-transfer-config", _CONNECTOR),
    _one("--kv-events-config", "Events of the KV cache are not published."),
    _one("--ec-transfer-config", _TEXT),
    _one("--weight-transfer-config", "Use --weight-transfer NAME and --opt NAME.KEY=VALUE."),
)

SECTIONS: Mapping[str, tuple[Foreign, ...]] = types.MappingProxyType(
    {
        "Model": _MODEL,
        "Memory": _MEMORY,
        "Scheduling": _SCHEDULING,
        "Parallelism": _PARALLEL,
        "Compilation": _COMPILE,
        "Speculation": _SPECULATION,
        "Adapters": _ADAPTERS,
        "Chat and output": _CHAT,
        "Media": _MEDIA,
        "HTTP": _HTTP,
        "Logs, metrics, traces": _OBSERVING,
        "Transfer": _TRANSFER,
    }
)

TABLE = tuple(row for rows in SECTIONS.values() for row in rows)

SAME = (
    "--model",
    "--served-model-name",
    "--revision",
    "--hf-token",
    "--download-dir",
    "--dtype",
    "--max-model-len",
    "--hf-overrides",
    "--rope-scaling",
    "--seed",
    "--runner",
    "--convert",
    "--load-format",
    "--quantization",
    "--block-size",
    "--max-num-seqs",
    "--max-num-batched-tokens",
    "--stream-interval",
    "--attention-backend",
    "--chat-template",
    "--chat-template-content-format",
    "--default-chat-template-kwargs",
    "--trust-request-chat-template",
    "--return-tokens-as-token-ids",
    "--reasoning-parser",
    "--host",
    "--port",
    "--uds",
    "--api-key",
    "--root-path",
    "--allowed-origins",
    "--allowed-methods",
    "--allowed-headers",
    "--allow-credentials",
    "--ssl-certfile",
    "--ssl-keyfile",
    "--ssl-ca-certs",
    "--ssl-cert-reqs",
    "--ssl-ciphers",
    "--enable-ssl-refresh",
)
"""vLLM's flags that are options of the same name."""

DEFAULTS: Mapping[str, str] = types.MappingProxyType(
    {
        "--allowed-origins": "none; vLLM lets every origin call (`*`)",
        "--ssl-ca-certs": "means nothing, and is refused, with `--ssl-cert-reqs 0`",
    }
)
"""Where one of these flags is not quite the same."""

SPELLINGS: Mapping[str, Mapping[str, str | None]] = types.MappingProxyType(
    {
        "model.dtype": {"half": "float16", "float": "float32"},
        "model.max_model_len": {"auto": "-1"},
        "select.load_format": {"auto": None},
    }
)
"""Option -> vLLM's name of a value -> ours."""

WITH_UNITS = frozenset({"model.max_model_len", "scheduler.max_num_batched_tokens", "kv.kv_memory"})
"""Options whose numbers may have a unit: 8k is 8000, 8K is 8192."""
