"""Parts that the offline cases share: their flags, and prompts as the engine takes them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from core.api import CommandHost, OfflineEngine

if TYPE_CHECKING:
    from core_plugin_bench.prompts import Prompt

VOCAB_SIZE = 32000
"""Few enough for most models, so that figures of different ones come from the same prompts."""


def add_flags(
    parser: argparse.ArgumentParser, host: CommandHost, *, input_len: int, output_len: int
) -> argparse._ArgumentGroup:
    """Add the flags of both cases and return the group for further ones."""
    group = parser.add_argument_group("benchmark")
    group.add_argument(
        "--input-len",
        "--random-input-len",
        type=int,
        default=input_len,
        metavar="N",
        help="Prompt tokens of a request.",
    )
    group.add_argument(
        "--output-len", "--random-output-len", type=int, default=output_len, metavar="N", help="Tokens to generate."
    )
    group.add_argument(
        "--vocab-size", type=int, default=VOCAB_SIZE, metavar="N", help="Prompt ids are below this and the model's own."
    )
    group.add_argument("--n", type=int, default=1, metavar="N", help="Continuations per prompt (default: 1).")
    group.add_argument("--disable-detokenize", action="store_true", help="Leave the time of making text out.")
    group.add_argument("--output-json", metavar="FILE", help="Write the result there.")
    host.options.add(parser)
    return group


def vocab_size(engine: OfflineEngine, args: argparse.Namespace) -> int:
    """Return the bound of prompt ids: what was asked for, or what the model has if that is less."""
    asked: int = args.vocab_size
    return min(asked, engine.vocab_size)


def generate(engine: OfflineEngine, prompts: Sequence[Prompt], args: argparse.Namespace) -> tuple[int, int]:
    """Run the prompts together, past any end of sequence, and return the tokens of the prompts and those generated.

    One continuation of a prompt is greedy; several are sampled.
    """
    inputs = [prompt.token_ids if prompt.text is None else prompt.text for prompt in prompts]
    common = {"temperature": 0.0 if args.n == 1 else 1.0, "n": args.n, "ignore_eos": True}
    params = [
        {**common, "max_tokens": prompt.output_len, "detokenize": not args.disable_detokenize} for prompt in prompts
    ]
    outputs = engine.generate(inputs, params)
    taken = sum(len(output.prompt_ids) for output in outputs)
    return taken, sum(len(completion.token_ids) for output in outputs for completion in output.outputs)
