"""What the offline cases share: their flags, the model, and random prompts as `LLM` takes them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from core.config.flags import add_option_flags
from core.config.load import LoadedOptions
from core.config.parser import CoreParser

if TYPE_CHECKING:
    from core import LLM
    from core.cli.bench.prompts import Prompt

VOCAB_SIZE = 32000
"""Few enough for most models, so that figures of different ones come from the same prompts."""


def add_flags(parser: CoreParser, *, input_len: int, output_len: int) -> argparse._ArgumentGroup:
    """Add the flags of both cases and return the group for further ones."""
    group = parser.add_argument_group("benchmark")
    group.add_argument("--input-len", type=int, default=input_len, metavar="N", help="Prompt tokens of a request.")
    group.add_argument("--output-len", type=int, default=output_len, metavar="N", help="Tokens to generate.")
    group.add_argument(
        "--vocab-size", type=int, default=VOCAB_SIZE, metavar="N", help="Prompt ids are below this and the model's own."
    )
    group.add_argument("--output-json", metavar="FILE", help="Write the result there.")
    add_option_flags(parser)
    return group


@contextmanager
def open_model(loaded: LoadedOptions) -> Iterator[LLM]:
    """Start the engine in the way `LLM(...)` does and release it at the end."""
    from core import LLM

    llm = LLM(**loaded.given())
    try:
        yield llm
    finally:
        llm.close()


def vocab_size(llm: LLM, args: argparse.Namespace) -> int:
    """Return the bound of prompt ids: what was asked for, or what the model has if that is less."""
    asked: int = args.vocab_size
    return min(asked, llm.config.shape.vocab_size)


def generate(llm: LLM, prompts: Sequence[Prompt]) -> int:
    """Run the prompts together, greedily and past any end of sequence, and return the number of tokens generated."""
    from core import SamplingParams

    inputs: list[Any] = [{"prompt_token_ids": prompt.token_ids} for prompt in prompts]
    params = [
        SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=prompt.output_len, detokenize=False)
        for prompt in prompts
    ]
    outputs = llm.generate(inputs, params)
    return sum(len(completion.token_ids) for output in outputs for completion in output.outputs)
