"""Table of vLLM's flags and their meanings here, as data. `docs/vllm-flags.md` is written from it."""

from __future__ import annotations

import types
from collections.abc import Mapping

from core_plugin_vllm_flags.rows import Foreign, many, one, repeats, switch

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
    one("--tokenizer", _ONE_TOKENIZER),
    one("--tokenizer-mode", _ONE_TOKENIZER, "auto", "hf"),
    repeats("--tokenizer-revision", "--revision", _ONE_TOKENIZER + " --revision names the revision of both."),
    switch("--skip-tokenizer-init", _ONE_TOKENIZER + " It is always loaded.", "false"),
    switch("--trust-remote-code", "Code from a checkpoint is never run; install a model plugin instead.", "false"),
    one("--code-revision", "Code from a checkpoint is never run, of whichever revision.", "*"),
    one("--hf-config-path", _HF_CONFIG),
    one("--config-format", _HF_CONFIG, "auto", "hf"),
    one("--rope-theta", """Use --hf-overrides '{"rope_theta": X}'."""),
    one("--generation-config", _DEFAULTS, "auto"),
    one("--override-generation-config", _DEFAULTS),
    one(
        "--task",
        "Use --runner.",
        "auto",
        generate=("--runner", "generate"),
        embed=("--runner", "pooling", "--convert", "embed"),
    ),
    one("-q", "", **{"*": ("--quantization", "{}")}),
)
_MEMORY = (
    one("--cpu-offload-gb", "Weights stay on the device; for the KV cache see --kv-connector.", "0", "0.0"),
    one("--swap-space", "Preempted requests are computed again; for the KV cache see --kv-connector.", "0", "0.0"),
    one(
        "--kv-offloading-size",
        "GiB of host memory: the KV connector cpu_offload.",
        **{"*": ("--kv-connector", "cpu_offload", "--opt", "cpu_offload.capacity={}GiB")},
    ),
    one("--kv-offloading-backend", "The KV connector cpu_offload does it; for others see --kv-connector.", "native"),
    one(
        "--prefix-caching-hash-algo",
        "Blocks are hashed with keyed BLAKE2b; --hash-seed makes the hashes equal in every start.",
    ),
    switch("--calculate-kv-scales", "Scales of an fp8 KV cache are those of the checkpoint, or 1.", "false"),
    switch("--enable-sleep-mode", "A server that sleeps is not available: stop it and start it again.", "false"),
)
_SCHEDULING = (
    switch("--enable-chunked-prefill", _CHUNKS, "true"),
    one("--max-num-partial-prefills", _CHUNKS),
    one("--max-long-partial-prefills", _CHUNKS),
    one("--max-num-queued-tokens", "The queue is bounded in requests: --max-waiting."),
    switch(
        "--async-scheduling",
        "Steps always overlap; --overlap-depth sets how far, 0 switches it off.",
        "true",
        false=("--overlap-depth", "0"),
    ),
    one("--watermark", "A hundredth of the KV blocks stays free at admission.", "0.01"),
    one("--scheduler-cls", _CODE + " The order of requests is --scheduling-policy."),
)
_PARALLEL = (
    one("--tensor-parallel-size -tp", _WORKERS, "1"),
    one("--pipeline-parallel-size -pp", _WORKERS, "1"),
    one("--data-parallel-size -dp", _WORKERS, "1"),
    one("--decode-context-parallel-size -dcp", _WORKERS, "1"),
    one("--prefill-context-parallel-size -pcp", _WORKERS, "1"),
    one("--data-parallel-size-local -dpl", _WORKERS, "1"),
    one("--data-parallel-rank -dpn", _WORKERS, "0"),
    one("--data-parallel-start-rank -dpr", _WORKERS, "0"),
    *many("--data-parallel-address --data-parallel-rpc-port --data-parallel-backend", _WORKERS),
    switch("--enable-expert-parallel -ep", _WORKERS, "false"),
    switch("--enable-eplb", _WORKERS, "false"),
    switch("--enable-dbo", _WORKERS, "false"),
    switch("--disable-custom-all-reduce", _WORKERS, "true"),
    one(
        "--distributed-executor-backend",
        "Name the plugin instead: --executor NAME (see `core plugins list`).",
        "uni",
        "mp",
    ),
    one("--nnodes -n", _NODES, "1"),
    one("--node-rank -r", _NODES, "0"),
    one("--master-addr", _NODES, "127.0.0.1", "localhost"),
    one("--master-port", _NODES),
    switch("--headless", _NODES + " The engine always has a server in front of it.", "false"),
    one("--api-server-count -asc", "One process serves HTTP.", "1"),
    switch("--grpc", "The server speaks HTTP; routes of plugins are added with --route.", "false"),
)
_COMPILE = (
    switch("--enforce-eager", _GRAPHS, "false", true=("--graphs", "none")),
    one("--compilation-config -cc", _COMPILED),
    Foreign(
        ("--optimization-level", "-O"),
        _COMPILED,
        words={
            "0": ("--no-compile", "--graphs", "none"),
            "1": ("--compile", "--graphs", "decode"),
            **dict.fromkeys("23", ("--compile", "--graphs", "full")),
        },
    ),
    one("--max-seq-len-to-capture", _GRAPHS),
    one(
        "--performance-mode",
        "--max-itl-ms, --max-num-seqs and --max-num-batched-tokens trade latency for throughput.",
        "balanced",
    ),
)
_SPECULATION = (
    one("--speculative-config -sc", _DRAFTS),
    *many("--spec-method --spec-model --spec-tokens", _DRAFTS),
)
_ADAPTERS = (
    switch("--enable-lora", _LORA, "false"),
    Foreign(("--lora-modules",), _LORA, -1),
    *many("--max-loras --max-lora-rank --max-cpu-loras --lora-dtype", _LORA),
)
_CHAT = (
    switch(
        "--enable-auto-tool-choice",
        "Give --tool-parser NAME beside it: tool calls are then parsed whenever tools are sent.",
        "true",
        "false",
        needs=("--tool-parser", "--tool-call-parser"),
    ),
    one("--tool-parser-plugin", "Tool parsers are installed distributions; see `core plugins list`."),
    one("--reasoning-parser-plugin", "Reasoning parsers are installed distributions; see `core plugins list`."),
    one("--tool-server", "Name MCP servers with --mcp-server LABEL=URL (docs/responses.md)."),
    one("--response-role", "Answers have the role assistant.", "assistant"),
    switch("--enable-force-include-usage", "A stream ends with its usage on stream_options.include_usage.", "false"),
    switch("--enable-prompt-tokens-details", "usage.prompt_tokens_details is always there.", "true"),
    switch("--exclude-tools-when-tool-choice-none", "The template is given no tools when tool_choice is none.", "true"),
    *many(
        "--structured-outputs-config --guided-decoding-backend", "Use --structured-output NAME (`core plugins list`)."
    ),
    Foreign(("--logits-processors",), "Use --logits-processor NAME (`core plugins list`).", -1),
)
_MEDIA = (
    *many("--limit-mm-per-prompt --allowed-local-media-path --mm-processor-kwargs --media-io-kwargs", _TEXT),
    Foreign(("--allowed-media-domains",), _TEXT, -1),
    switch("--language-model-only", _TEXT, "true"),
)
_HTTP = (
    one("--middleware", _CODE),
    switch("--disable-fastapi-docs", "There are no interactive pages; /openapi.json has the routes.", "true"),
    *many("--h11-max-incomplete-event-size --h11-max-header-count", _HEAD),
    one("--sse-keep-alive-interval", "Streams carry events only.", "0"),
    switch("--enable-request-id-headers", "Every answer has X-Request-Id.", "true"),
    switch("--enable-server-load-tracking", "/load always answers.", "true"),
    switch("--disable-uvicorn-access-log", "There is none; --log-requests logs one line per request.", "true"),
    one("--uvicorn-log-level", "Use --log-level."),
)
_OBSERVING = (
    switch("--disable-log-stats", "Figures are not logged; /metrics has them.", "true"),
    switch("--disable-log-requests", "", true=("--no-log-requests",), false=("--log-requests",)),
    switch("--enable-log-outputs", "Answers are never logged.", "false"),
    one("--max-log-len", "Neither prompts nor answers are logged.", "*"),
    *many("--otlp-traces-endpoint --collect-detailed-traces", _TRACES),
    one(
        "--show-hidden-metrics-for-version",
        "No metric is hidden: /metrics has them all, and by vLLM's names with --metrics-compat vllm.",
    ),
    one("--profiler-config", "POST /start_profile and /stop_profile time the phases of steps."),
    one("--additional-config", "Options of plugins are --opt NAME.KEY=VALUE."),
)
_TRANSFER = (
    one("--kv-transfer-config", _CONNECTOR),
    one("--kv-events-config", "Events of the KV cache are not published."),
    one("--ec-transfer-config", _TEXT),
    one("--weight-transfer-config", "Use --weight-transfer NAME and --opt NAME.KEY=VALUE."),
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
