"""Compiles the kernels for cards that are not here: run by `test_ops_compile` in a process of its own.

Arguments: `cuda:90` or `hip:gfx942`, the dtype of activations, `ones` or `many`, and kernels to compile (all by
default). With `ones` every size is 1, which Triton makes a constant. Prints JSON: bytes of shared memory of each.
"""

import json
import sys
from itertools import product

import triton
from core_plugin_kernels_triton.ops.kernels import activation, argmax, draw, embedding, logits, norm, rotary
from core_plugin_kernels_triton.ops.tiles import power_of_two, warps
from core_plugin_kernels_triton.tables import sizes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
POINTERS = {
    **dict.fromkeys(("rows", "ids", "positions", "places", "section_places"), "*i64"),
    **dict.fromkeys(("best", "section_best", "values", "strengths"), "*fp32"),
    "numbers": "*fp64",
    "bits": "*i32",
    "counts": "*i32",
    "prompt": "*u8",
    "eps": "fp32",
}
SIZE, HEAD_DIM, ROTATED = 5120, 80, 32


def target_of(name):
    """Return Triton's target and the sections of its table."""
    backend, _, arch = name.partition(":")
    if backend == "hip":
        return GPUTarget("hip", arch, 32 if arch.startswith("gfx1") else 64), ("default", "hip", name)
    return GPUTarget("cuda", int(arch), 32), ("default", "cuda", f"cuda:{arch[:-1]}.{arch[-1]}")


def jobs(table):
    """Yield name, kernel, further pointers in the activations' dtype, other types, constants, and warps."""
    block = power_of_two(SIZE)
    many = {"ROWS": 2, "BLOCK": 1024}
    for centred, added, biased in product((False, True), repeat=3):
        absent = {**({} if added else {"residual": None}), **({} if biased else {"bias": None})}
        constants = {"CENTERED": centred, "ADDED": added, "BIASED": biased, "ROWS": 1, "BLOCK": block, **absent}
        words = ("x", "residual", "weight", "bias", "out", "total")
        yield (
            f"norm {centred:d}{added:d}{biased:d}",
            norm.norm,
            words,
            {"rows": "i32"},
            constants,
            warps(block, table["norm"]["lane"]),
        )
    heads = {"CENTERED": False, "ADDED": False, "BIASED": False, "ROWS": table["norm"]["tile"] // 128, "BLOCK": 128}
    heads |= {"residual": None, "bias": None}
    yield "norm of heads", norm.norm, ("x", "weight", "out", "total"), {"rows": "i32"}, heads, 4
    for kind, gated in product((0, 1, 2), (False, True)):
        constants = {"KIND": kind, "GATED": gated, "ROWS": 1, "BLOCK": table["activation"]["tile"]}
        yield f"activation {kind}{gated:d}", activation.activate, ("x", "out"), {"rows": "i32"}, constants, 4
    for pairs in (False, True):
        constants = {"INTERLEAVED": pairs, "ROWS": table["rotary"]["tile"] // 128, "HALF": ROTATED // 2, "REST": 64}
        yield f"rotary {pairs:d}", rotary.rotary, ("q", "k", "q_out", "k_out", "table"), {}, constants, 4
    yield "embedding", embedding.look_up, ("weight", "out"), {"rows": "i32"}, many, 4
    constants = {"ROWS": 1, "BLOCK": table["argmax"]["tile"]}
    yield "sections", argmax.best_of_sections, ("logits",), {"rows": "i32"}, constants, 8
    yield "best", argmax.best_of_rows, (), {"rows": "i32"}, {"ROWS": 64, "SECTIONS": 16}, 1
    for indexed, truncated in ((False, False), (True, True)):
        constants = {"INDEXED": indexed, "TRUNCATED": truncated, "ROWS": 1, "BLOCK": table["draw"]["tile"]}
        constants |= {} if indexed else {"rows": None}
        yield f"draw {truncated:d}", draw.draw, ("logits",), {"out": "*i64"}, constants, 16
    yield "mask_tokens", logits.mask_tokens, ("logits",), {"rows": "i32"}, many, 4
    yield "add_bias", logits.add_bias, ("logits",), {}, {"BLOCK": 256}, 4
    yield "penalize", logits.penalize, ("logits",), {}, many, 4


def main(name, dtype, ones, *wanted):
    target, sections = target_of(name)
    found = {}
    for job, kernel, words, others, constants, num_warps in jobs(sizes("ops", sections)):
        if wanted and job not in wanted:
            continue
        types = {**POINTERS, **dict.fromkeys(words, f"*{NAMES[dtype]}"), **others}
        if ones == "ones":
            rest = [one for one in kernel.arg_names if one not in constants and types.get(one, "i32") == "i32"]
            constants = constants | dict.fromkeys(rest, 1)  # jobs share theirs
        signature = {one: "constexpr" if one in constants else types.get(one, "i32") for one in kernel.arg_names}
        source = ASTSource(kernel, signature, constants)
        found[job] = triton.compile(source, target=target, options={"num_warps": num_warps}).metadata.shared
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
