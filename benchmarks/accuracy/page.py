"""The page of what methods cost: `docs/accuracy.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_HEAD = """# Accuracy

<!-- Written by `python -m benchmarks.accuracy.methods --write`. -->

What it costs to store weights in fewer bits, beside float32 with the same weights. A model's GGUF file (SmolLM2 135M in
Q4_1, Gemma 3 270M in Q4_K_M) is opened to float32, which is the reference (transformers): what the file itself has lost
does not count. Every method gets these numbers in its own form, rounded to the nearest with scales by the extremes
(`int4` searches its scales). Checkpoints that were calibrated lose less than the same layout here.

- *divergence*: mean Kullback-Leibler divergence of the next token's distribution from the reference's, in nats, of the
  128 most likely tokens and the rest as one.
- *the same token*: how often the most likely token is the reference's.
- *perplexity*: of the text, and how much more that is than the reference's, with the standard error over the tokens
  where it was kept. Less than the reference's is chance: rounding can favour a text.
- *of it by the codes*: the same with the codes opened to float32 and multiplied in float32 by torch (`--dtype float32
  --kernel linear=reference --kernel lookup=reference`), which is what transformers computes with these weights. The
  rest is the doing of bfloat16 and of the products.

The text is three of the [decisions](decisions), in pieces of 256 tokens, computed as prompts on a CPU in bfloat16
unless a row says otherwise. The models are small: larger ones lose less in the same form.
"""

_TAIL = """
## What the rows are

- `int8`, `fp8`, `int4`: [rounded while they load](../plugins/quantization/unquantized/README.md), by
  `--quantization`. `int8` leaves activations here (`--opt int8.activations=16`); its default rounds them for each
  token, as the W8A8 checkpoint says: models as small as these bear that badly. `fp8` rounds none on CPUs.
- `int4` has groups of 128 inputs where they divide a layer's, else of 32: in SmolLM2 only `down_proj` has 128.
- Layouts of AWQ and GPTQ are those of the formats, not of their calibration; groups are of 64 inputs, as 128 do not
  divide these models' widths. Nor do the super-blocks of 256 of Q4_K, Q5_K and Q6_K: files of these kinds have rows
  that do not divide in Q5_0, Q5_1 or Q8_0, as llama.cpp's program chooses.
- Rows of llama.cpp are of the same files. It rounds activations to 8 bits, core to 15
  ([0013](decisions/0013-accuracy-of-activations.md)), and tells nothing of tokens that are not likely, hence no
  perplexity.
- Rows of vLLM are of the same checkpoints, by vLLM for CPUs (0.32). It reads no GGUF files; for MXFP4 and NVFP4 it has
  no products for CPUs, and those for float8 in blocks take AMX, which this machine does not offer.

## Why some lose more

- **Weights that were rounded before.** SmolLM2's lie on the grid of Q4_1, 16 levels for 32 inputs. Q4_K can find that
  grid again (an error of 1.9 % of a weight's 2-norm), which flatters it; 31 steps of Q5_1 do not meet 16 levels
  (4.6 %, Q5_0: 4.4 %, both by the gguf package's decoder), so the file in Q5_K_M, most of whose rows are in Q5_1,
  loses more than that in Q4_K_M.
- **MXFP4** loses three times what NVFP4 does, as a Quark checkpoint (codes by core) and as a GGUF file (codes by the
  gguf package) alike. It is the format: both hold the same numbers, but for 0.14 % that lie in the middle of two codes,
  12 % of a weight's 2-norm from the plain ones. Scales are powers of two, and by the specification's rule a block's
  largest number may be 8 times its scale, where 6 is the largest code; in 46 % of the blocks it is beyond 6. With the
  better of that scale and the next for each block less is lost, but still more than in any other form.
- **4 bits rounded to the nearest** cost so small a model 18 to 30 % in other layouts, too. It is not the products'
  doing: the codes of `int4` opened to float32 and run by transformers lose as much (500 tokens: +25 %, in groups of
  32 +22 %).

## Bounds

`make test-all` holds the demo model to these distances in perplexity from float32: bfloat16 0.2 %, `int8` and Q8_0
0.5 %, float8 3 % (in blocks 4 %), `int4` 35 % (`tests/e2e/test_accuracy_of_methods.py`). What is aimed at is 0.5 % for
8-bit integers, 1 % for float8 and 5 % for 4 bits. Integers and Q4_K_M keep to that. float8 is 1.1 ± 0.7 % away, which
a text of this length does not tell from 1; in blocks it is 2.4 ± 0.7 %, and other forms in 4 bits are at 18 % and more.
float8 and `int4` lose that by their codes, not by products, hence their bounds are what was measured and about two
standard errors.
"""


def written(results: Mapping[str, Mapping[str, Mapping[str, Any]]], order: Sequence[str]) -> str:
    """Return the page of what was measured: model -> method -> figures, or why there are none."""
    tables = ["\n".join(_table(model, found, order)) for model, found in results.items()]
    return "\n".join([_HEAD, *tables, _TAIL.lstrip("\n")])


def _table(model: str, found: Mapping[str, Mapping[str, Any]], order: Sequence[str]) -> Iterator[str]:
    measured = {name: found[name] for name in order if "divergence" in found.get(name, {})}
    if not measured:
        yield f"## {model}\n\nNot measured yet.\n"
        return
    first = next(iter(measured.values()))
    yield f"## {model}\n"
    yield f"{first['places']:,} tokens; the reference's perplexity is {first['due']:.2f}.\n"
    yield "|  | divergence | the same token | perplexity | more than the reference | of it by the codes |"
    yield "|---|---|---|---|---|---|"
    for name, one in measured.items():
        told = f"{one['perplexity']:.2f} | {_more(one)}" if one["perplexity"] else "- | -"
        codes = _more(one["codes"]) if "codes" in one else "-"
        yield f"| {name} | {one['divergence']:.5f} | {one['agreement']:.1%} | {told} | {codes} |"
    yield ""
    failed = [f"{name} ({found[name]['error']})" for name in order if "error" in found.get(name, {})]
    missing = [name for name in order if name not in found]
    for what, names in (("Did not run", failed), ("Not measured yet", missing)):
        if names:
            yield f"{what}: {'; '.join(names)}.\n"


def _more(figures: Mapping[str, Any]) -> str:
    """Return by how much the perplexity is above the reference's, with its standard error if that was kept."""
    ratio = figures["perplexity"] / figures["due"]
    error = f" ± {ratio * figures['spread'] * 100:.2f}" if "spread" in figures else ""
    return f"{(ratio - 1) * 100:+.2f}{error} %"
