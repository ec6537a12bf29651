"""Models with made-up weights: whole ones of the sizes that people run, and a few layers of larger ones.

Speed does not depend on what the weights are; only the formats, and so the bytes that a step reads, are those of the
models. Of the mixtures of experts layers are cut to four, and the vocabulary to 32,000.
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.compare.shapes.base import Shape
from benchmarks.compare.shapes.deepseek_lite import DEEPSEEK_LITE
from benchmarks.compare.shapes.dense import DENSE
from benchmarks.compare.shapes.qwen3_moe import QWEN3_MOE
from benchmarks.compare.shapes.qwen3_next import QWEN3_NEXT

SHAPES: Mapping[str, Shape] = {
    **DENSE,
    "qwen3-moe": QWEN3_MOE,
    "deepseek-lite": DEEPSEEK_LITE,
    "qwen3-next": QWEN3_NEXT,
}
