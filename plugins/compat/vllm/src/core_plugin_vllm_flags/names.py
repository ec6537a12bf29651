"""vLLM's names of what core has: flags that are the same, and further names of values."""

from __future__ import annotations

import types
from collections.abc import Mapping

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

NAMES: Mapping[str, str] = types.MappingProxyType(
    {
        "gpu-memory-utilization": "memory-fraction",
        "kv-cache-memory-bytes": "kv-memory",
        "num-gpu-blocks-override": "num-blocks",
        "kv-cache-dtype": "kv-dtype",
        "enable-prefix-caching": "prefix-caching",
        "long-prefill-token-threshold": "max-chunk",
        "max-num-queued-reqs": "max-waiting",
        "io-processor-plugin": "io-processor",
        "scheduling-policy": "scheduler-policy",
        "tool-call-parser": "tool-parser",
        "shutdown-timeout": "drain-timeout",
        "enable-log-requests": "log-requests",
        "enable-tokenizer-info-endpoint": "tokenizer-info",
    }
)
"""vLLM's name of an option -> core's."""

SPELLINGS: Mapping[str, Mapping[str, str]] = types.MappingProxyType(
    {"model.dtype": {"half": "float16", "float": "float32"}}
)
"""Option -> vLLM's name of a value that core does not know -> core's."""
