"""Tiny models end to end: the host processor's tokens with graphs of each kind and without, at depth 0, 1 and 2."""

from __future__ import annotations

import tempfile
from pathlib import Path

from record import Record

MODES = ("none", "decode", "full")
FAMILIES = ("llama", "qwen3", "gemma2", "mistral_window")
OPTIONS = {
    "dtype": "float32",
    "num_blocks": 64,
    "block_size": 16,
    "max_model_len": 128,
    "max_num_seqs": 6,
    "max_num_batched_tokens": 64,
}
PROMPTS = [
    {"prompt_token_ids": [3 + (i * 29 + seed * 7) % 90 for i in range(length)]}
    for seed, length in enumerate((40, 1, 23, 9))
]


def main() -> None:
    """Run the phase."""
    record = Record()
    from core_testing.tinymodels import tiny_model

    for family in FAMILIES:
        with record.part(family), tempfile.TemporaryDirectory() as folder:
            _family(record, family, str(tiny_model(Path(folder), family)))


def _family(record: Record, family: str, model: str) -> None:
    due = generated(model, platform="cpu", **OPTIONS)
    wrong = []
    for graphs in MODES:
        for depth in (0, 1, 2):
            given = {"overlap_depth": depth, "graphs": graphs, **record.stand_in}
            if generated(model, platform=record.platform, **OPTIONS, **given) != due:
                wrong.append(f"--graphs {graphs}, depth {depth}")
    record.note(f"{family}, ways that give the host's tokens", f"{9 - len(wrong)} of 9")
    if wrong:
        record.fail(f"{family}: other tokens than the host processor's with {'; '.join(wrong)}")


def generated(model: str, **options):
    """Return the tokens of the prompts, two of them drawn."""
    from core import LLM, SamplingParams

    greedy = SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True)
    drawn = SamplingParams(temperature=1.0, seed=11, max_tokens=16, ignore_eos=True)
    with LLM(model, **options) as llm:
        found = llm.generate(PROMPTS, [greedy, drawn, greedy, drawn])
        return [one.outputs[0].token_ids for one in found]


if __name__ == "__main__":
    main()
