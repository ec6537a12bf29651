"""The flags of `core bench serve`: those that users of vLLM's benchmark know, where they mean something here."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from core.api import ConfigError
from core.api.sampling_table import SAMPLING_FIELDS, fields_of
from core_plugin_bench import plot

ENDPOINTS: Mapping[str, str] = MappingProxyType(
    {"openai": "/v1/completions", "vllm": "/v1/completions", "openai-chat": "/v1/chat/completions"}
)
DATASETS = ("random", "prefix_repetition", "sharegpt", "custom")
SAMPLING = tuple(one.name for one in (*fields_of("draw"), *fields_of("penalize")))
_KINDS: Mapping[str, type] = MappingProxyType({"integer": int, "number": float})
_IGNORED = ("--trust-remote-code", "--skip-tokenizer-init", "--no-oversample")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add all flags, in groups."""
    _server(parser.add_argument_group("server"))
    _requests(parser.add_argument_group("requests"))
    _prompts(parser.add_argument_group("prompts"))
    _pace(parser.add_argument_group("load"))
    _result(parser.add_argument_group("result"))
    for flag in _IGNORED:
        parser.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--tokenizer-mode", help=argparse.SUPPRESS)


def _server(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--backend", choices=sorted(ENDPOINTS), default="openai", help="Kind of end point.")
    group.add_argument("--base-url", metavar="URL", help="Server; default: http://HOST:PORT.")
    group.add_argument("--host", default="127.0.0.1", help="Host of the server.")
    group.add_argument("--port", type=int, default=8000, help="Port of the server.")
    group.add_argument("--endpoint", metavar="PATH", help="Path; default: the backend's.")
    group.add_argument("--api-key", help="Key of the server. [CORE_API_KEY]")
    group.add_argument("--header", nargs="*", default=[], metavar="KEY=VALUE", help="Further headers of every request.")
    group.add_argument(
        "--ca", metavar="FILE", help="Authority of the server's certificate, in PEM form. [SSL_CERT_FILE]"
    )
    group.add_argument("--insecure", action="store_true", help="Do not check the server's certificate.")
    group.add_argument(
        "--ready-check-timeout-sec", type=float, default=0.0, metavar="S", help="Wait so long for a first answer."
    )


def _requests(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--model", help="Model to ask for; default: the server's first.")
    group.add_argument("--served-model-name", metavar="NAME", help="Name to ask for, where --model is a path.")
    group.add_argument("--lora-modules", nargs="+", default=[], metavar="NAME", help="Adapters to ask for instead.")
    group.add_argument(
        "--lora-assignment", choices=["random", "round-robin"], default="random", help="Which adapter a request gets."
    )
    group.add_argument("--extra-body", type=_json_object, default={}, metavar="JSON", help="Fields for every request.")
    group.add_argument("--chat-template-kwargs", type=_json_object, metavar="JSON", help="Values for the template.")
    group.add_argument("--ignore-eos", action="store_true", help="Generate the full output length.")
    group.add_argument("--logprobs", type=int, metavar="N", help="Log probabilities per token.")
    for name in SAMPLING:
        group.add_argument(_flag(name), type=_KINDS[SAMPLING_FIELDS[name].type], metavar="X", help="Sampling.")
    group.set_defaults(temperature=0.0)
    group.add_argument("--request-id-prefix", default="", metavar="TEXT", help="Send X-Request-Id: TEXT and a number.")
    group.add_argument("--request-timeout", type=float, default=6 * 3600.0, metavar="S", help="Seconds per request.")


def _prompts(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--dataset-name", choices=DATASETS, default="random", help="Where prompts come from.")
    group.add_argument("--dataset-path", metavar="FILE", help="ShareGPT's JSON, or JSON lines with `prompt` (custom).")
    group.add_argument("--disable-shuffle", action="store_true", help="Take the file's prompts as they stand.")
    group.add_argument(
        "--tokenizer", metavar="DIR", help="Folder with tokenizer.json, to count tokens and send random text to chats."
    )
    group.add_argument("--num-prompts", type=positive, default=100, metavar="N", help="Requests (default: 100).")
    group.add_argument(
        "--random-input-len", "--input-len", type=positive, default=128, metavar="N", help="Prompt tokens."
    )
    group.add_argument("--random-output-len", type=positive, metavar="N", help="Tokens to generate (default: 128).")
    group.add_argument("--output-len", type=positive, metavar="N", help="Tokens to generate, for any dataset.")
    group.add_argument("--random-prefix-len", type=int, default=0, metavar="N", help="Tokens in front that all share.")
    group.add_argument("--random-range-ratio", type=float, default=0.0, metavar="X", help="Spread of lengths, [0, 1).")
    group.add_argument("--vocab-size", type=positive, default=32000, metavar="N", help="Prompt ids are below this.")
    group.add_argument("--sharegpt-output-len", type=positive, metavar="N", help="Default: the answer's length.")
    group.add_argument(
        "--custom-output-len", type=int, default=256, metavar="N", help="-1: the line's `output_tokens`."
    )
    for name, default in (("prefix-len", 256), ("suffix-len", 256), ("num-prefixes", 10), ("output-len", 128)):
        flag = f"--prefix-repetition-{name}"
        group.add_argument(flag, type=positive, default=default, metavar="N", help=f"Default: {default}.")


def _pace(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--request-rate", type=float, default=math.inf, metavar="R", help="Requests/s (default: inf).")
    group.add_argument("--burstiness", type=float, default=1.0, metavar="X", help="1: Poisson; less: burstier.")
    group.add_argument("--ramp-up-strategy", choices=["linear", "exponential"], help="Change the rate over the run.")
    group.add_argument("--ramp-up-start-rps", type=float, default=1.0, metavar="R", help="Rate at the start.")
    group.add_argument("--ramp-up-end-rps", type=float, default=10.0, metavar="R", help="Rate at the end.")
    group.add_argument("--max-concurrency", type=positive, metavar="N", help="Requests open at once.")
    group.add_argument("--num-warmups", type=int, default=0, metavar="N", help="Requests before, not measured.")
    group.add_argument("--seed", type=int, default=0, help="Seed of prompts and arrivals.")


def _result(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--percentile-metrics", default="ttft,tpot,itl,e2el", metavar="LIST", help="Metrics to report.")
    group.add_argument("--metric-percentiles", default="99", metavar="LIST", help="Percentiles (default: 99).")
    group.add_argument("--goodput", nargs="+", default=[], metavar="METRIC:MS", help="Objectives, as ttft:200 tpot:50.")
    plot.add_flag(group)
    group.add_argument("--no-progress", "--disable-tqdm", action="store_true", help="Do not show progress.")
    group.add_argument("--save-result", action="store_true", help="Write the result as JSON.")
    group.add_argument("--save-detailed", action="store_true", help="With the timelines of all requests.")
    group.add_argument("--append-result", action="store_true", help="Add it as a line to the file.")
    group.add_argument("--result-dir", default=".", metavar="DIR", help="Where to write.")
    group.add_argument("--result-filename", metavar="NAME", help="Default: from label, rate, model and date.")
    group.add_argument("--label", help="Name of this run in the result.")
    group.add_argument("--metadata", nargs="*", default=[], metavar="KEY=VALUE", help="Further fields of the result.")


def pairs(flag: str, given: list[str]) -> dict[str, str]:
    """Return `KEY=VALUE` words as a mapping.

    Raises:
        ConfigError: A word has no `=` (CORE-C108).
    """
    found = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not equals:
            raise bad(flag, word, "KEY=VALUE")
        found[key.strip()] = value.strip()
    return found


def check_pace(args: argparse.Namespace) -> None:
    """Check what the arrival process and the lengths need.

    Raises:
        ConfigError: A value is out of its range (CORE-C108).
    """
    for name in ("request_rate", "burstiness", "ramp_up_start_rps", "ramp_up_end_rps", "request_timeout"):
        if not getattr(args, name) > 0:
            raise bad(_flag(name), getattr(args, name), "a number > 0")
    if args.ramp_up_strategy and math.isfinite(args.request_rate):
        raise bad("--request-rate", args.request_rate, "none beside --ramp-up-strategy, which sets the rate")
    if not 0 <= args.random_range_ratio < 1:
        raise bad("--random-range-ratio", args.random_range_ratio, "a number in [0, 1)")
    if args.dataset_name in ("sharegpt", "custom") and not args.dataset_path:
        raise bad("--dataset-path", None, f"the file that --dataset-name {args.dataset_name} reads")
    if args.custom_output_len < 1 and args.custom_output_len != -1:
        raise bad("--custom-output-len", args.custom_output_len, "an integer >= 1, or -1")


def bad(flag: str, value: object, allowed: str) -> ConfigError:
    """Return the error of a flag's value."""
    return ConfigError("CORE-C108", f"flag {flag}: {value!r} is not allowed; allowed: {allowed}.")


def positive(text: str) -> int:
    """Return an integer >= 1; for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not an integer >= 1")
    return number


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value
