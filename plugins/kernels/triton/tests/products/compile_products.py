"""Compiles the kernels for cards that are not here: run by `test_products_compile` in a process of its own.

Arguments: `cuda:90` or `hip:gfx942`, dtype of activations, `ones` or `many`, kernels to compile (all by default).
With `ones` every size is 1, which Triton makes a constant. Prints JSON: bytes of shared memory of each.
"""

import json
import sys

import triton
from core_plugin_kernels_triton.products.kernels import kinds
from core_plugin_kernels_triton.products.kernels.multiply import merge, multiply, rows_of
from core_plugin_kernels_triton.products.kernels.rounding import round_rows
from core_plugin_kernels_triton.products.rounding import ROUNDINGS
from core_plugin_kernels_triton.products.stored import BLOCKS, stored
from core_plugin_kernels_triton.products.tiles import tiling
from core_plugin_kernels_triton.tables import sizes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from core.api import WeightForm

NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
POINTERS = {
    **dict.fromkeys(("x_scales", "zeros", "table", "row_scales", "bias", "whole"), "*fp32"),
    "codes": "*u8",
    "group_of": "*i32",
    "ids": "*i64",
}
FORMS = {
    "int8": WeightForm(codes="int", bits=8),
    "groups": WeightForm(codes="int", bits=4, inputs=128, zeros=True),
    "small groups": WeightForm(codes="int", bits=4, inputs=32),
    "ordered": WeightForm(codes="int", bits=4, inputs=128, zeros=True, ordered=True),
    "3 bits": WeightForm(codes="int", bits=3, inputs=64, zeros=True),
    "e4m3": WeightForm(codes="float8_e4m3fn"),
    "e4m3 blocks": WeightForm(codes="float8_e4m3fn", outputs=128, inputs=128),
    "e5m2": WeightForm(codes="float8_e5m2"),
    "mxfp8": WeightForm(codes="float8_e4m3fn", inputs=32, scale="e8m0"),
    "mxfp4": WeightForm(codes="e2m1", inputs=32, scale="e8m0"),
    "nvfp4": WeightForm(codes="e2m1", inputs=16, scale="e4m3"),
    "nf4": WeightForm(codes="nf4", inputs=64),
    **{kind: WeightForm(codes=f"gguf:{kind}") for kind in BLOCKS},
}
OUTPUTS, INPUTS = 4096, 14336


def target_of(name):
    """Return Triton's target and the sections of its table."""
    backend, _, arch = name.partition(":")
    if backend == "hip":
        return GPUTarget("hip", arch, 32 if arch.startswith("gfx1") else 64), ("default", "hip", name)
    return GPUTarget("cuda", int(arch), 32), ("default", "cuda", f"cuda:{arch[:-1]}.{arch[-1]}")


def weight(form):
    """Return the constants and absent pointers of a form."""
    one = stored(form, OUTPUTS, INPUTS)
    kept = {"KIND": one.kind, "BITS": one.bits, "SCALE": one.scale, "GROUP": one.group, "ZEROS": one.zeros}
    kept |= {"ORDERED": one.ordered, "SCALED": one.by_row}
    absent = {"scales": one.grouped, "zeros": one.zeros, "group_of": one.ordered, "table": one.table}
    absent["row_scales"] = one.by_row
    pointers = {"scales": "*fp32" if form.scale == "float32" else "*u8"}
    return {**kept, **{name: None for name, there in absent.items() if not there}}, pointers


def product(table, form, rows, how, dtype, fnuz, runs):
    """Return types, constants and options of `multiply`."""
    opened = how == kinds.OPENED.value
    bits = 8 if not opened else 32 if dtype == "fp32" else 16
    tile = tiling(table, rows, OUTPUTS, INPUTS, bits, alike=False)
    constants, pointers = weight(form)
    split = tile.splits > 1
    sums = "i32" if how == kinds.INTEGERS.value else "fp32"
    coded = "i8" if how == kinds.INTEGERS.value else "u8"
    pointers |= {"x": f"*{dtype if opened else coded}", "out": f"*{sums if split else dtype}"}
    constants |= {"HOW": how, "FNUZ": fnuz, "RUNS": runs, "WIDE": False, "SPLIT": split, "BIASED": True}
    constants |= {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k}
    if opened:
        constants["x_scales"] = None
    return pointers, constants, {"num_warps": tile.warps, "num_stages": tile.stages}


def jobs(table, dtype, float8, fnuz):
    """Yield name, kernel, pointers, constants and options."""
    for name, form in FORMS.items():
        for rows in (1, 512):
            yield f"{name} {rows}", multiply, *product(table, form, rows, kinds.OPENED.value, dtype, False, False)
        constants, pointers = weight(form)
        constants |= {"BLOCK_N": table["lookup"]["n"], "BLOCK_K": table["lookup"]["k"]}
        yield f"{name} rows", rows_of, {**pointers, "out": f"*{dtype}"}, constants, {"num_warps": 4}
    for rows in (1, 512):
        yield (
            f"int8 by int8 {rows}",
            multiply,
            *product(table, FORMS["int8"], rows, kinds.INTEGERS.value, dtype, False, False),
        )
        for name, runs in (("e4m3", False), ("e4m3 blocks", True)) if float8 else ():
            yield (
                f"{name} by e4m3 {rows}",
                multiply,
                *product(table, FORMS[name], rows, kinds.FLOATS.value, dtype, fnuz, runs),
            )
    for sums in ("fp32", "i32"):
        constants = {"TOKENS": True, "SCALED": True, "BIASED": True, "BLOCK_M": 16, "BLOCK_N": table["merge"]["n"]}
        yield f"merge {sums}", merge, {"sums": f"*{sums}", "out": f"*{dtype}"}, constants, {"num_warps": 4}
    for name, how in ROUNDINGS.items():
        for coded in (False, True) if how.kind != 2 else (False,):
            constants = {"KIND": how.kind, "POWER": how.power, "WHOLE": bool(how.largest), "CODES": coded}
            constants |= {"RUN": how.run or 16384, "BLOCK": 16384}
            constants |= ({} if how.largest else {"whole": None}) | ({} if coded else {"scales": None})
            out = dtype if not coded else "i8" if how.kind == 0 else "u8"
            pointers = {"x": f"*{dtype}", "out": f"*{out}", "scales": "*fp32"}
            yield f"{name} {coded:d}", round_rows, pointers, constants, {"num_warps": 16}


def main(name, dtype, ones, *wanted):
    target, sections = target_of(name)
    found = {}
    arch = name.partition(":")[2]
    float8 = int(arch) >= 89 if arch.isdigit() else arch in ("gfx942", "gfx950")
    for job, kernel, pointers, constants, options in jobs(
        sizes("products", sections), NAMES[dtype], float8, arch == "gfx942"
    ):
        if wanted and job not in wanted:
            continue
        types = {**POINTERS, **pointers}
        if ones == "ones":
            constants |= {one: 1 for one in kernel.arg_names if one not in constants and one not in types}
        signature = {one: "constexpr" if one in constants else types.get(one, "i32") for one in kernel.arg_names}
        source = ASTSource(kernel, signature, constants)
        try:
            found[job] = triton.compile(source, target=target, options=options).metadata.shared
        except Exception as error:
            raise RuntimeError(f"{job} for {name}: {error}") from error
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
