"""Compiles the kernels for cards that are not here: run by `test_products_compile` in a process of its own.

Arguments: `cuda:90` or `hip:gfx942`, dtype of activations, `ones` or `many`, kernels to compile (all by default).
With `ones` every size is 1, which Triton makes a constant. Prints JSON: bytes of shared memory of each, and of products
in runs with scales how many instructions take these.
"""

import json
import re
import sys

import triton
from core_plugin_kernels_triton.products.kernels import kinds
from core_plugin_kernels_triton.products.kernels.multiply import merge, multiply, rows_of
from core_plugin_kernels_triton.products.kernels.rounding import round_rows
from core_plugin_kernels_triton.products.rounding import ROUNDINGS, kind_of
from core_plugin_kernels_triton.products.stored import BLOCKS, stored
from core_plugin_kernels_triton.products.tiles import tiling
from core_plugin_kernels_triton.tables import sizes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from core.api import WeightForm

NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
POINTERS = {
    **dict.fromkeys(("x_scales", "x_factors", "zeros", "table", "row_scales", "bias", "whole"), "*fp32"),
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
SCALED = (("mxfp4", "e2m1"), ("mxfp4", "e4m3"), ("mxfp8", "e4m3"), ("nvfp4", "e2m1"))
"""Forms, and kinds of activations, that cards multiply in runs with scales; the last has none of e8m0."""
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


def product(table, form, rows, how, dtype, fnuz=False, runs=False, x_kind=0):
    """Return types, constants and options of `multiply`."""
    opened, scaled = how == kinds.OPENED.value, how == kinds.MICROSCALED.value
    bits = 8 if not opened else 32 if dtype == "fp32" else 16
    tile = tiling(table, rows, OUTPUTS, INPUTS, bits, alike=False, scaled=scaled)
    constants, pointers = weight(form)
    split = tile.splits > 1
    sums = "i32" if how == kinds.INTEGERS.value else "fp32"
    coded = "i8" if how == kinds.INTEGERS.value else "u8"
    pointers |= {"x": f"*{dtype if opened else coded}", "out": f"*{sums if split else dtype}"}
    constants |= {"HOW": how, "FNUZ": fnuz, "X": x_kind, "RUNS": runs, "WIDE": False, "SPLIT": split, "BIASED": True}
    constants["FACTORS"] = not (opened or runs or form.scale == "e8m0")
    constants |= {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k}
    if scaled:
        pointers["x_scales"] = "*u8"
    elif not runs:
        constants["x_scales"] = None
    if not constants["FACTORS"]:
        constants["x_factors"] = None
    return pointers, constants, {"num_warps": tile.warps, "num_stages": tile.stages}


def jobs(table, dtype, float8, fnuz, scaled):
    """Yield name, kernel, pointers, constants and options."""
    for name, form in FORMS.items():
        for rows in (1, 512):
            yield f"{name} {rows}", multiply, *product(table, form, rows, kinds.OPENED.value, dtype)
        constants, pointers = weight(form)
        constants |= {"BLOCK_N": table["lookup"]["n"], "BLOCK_K": table["lookup"]["k"]}
        yield f"{name} rows", rows_of, {**pointers, "out": f"*{dtype}"}, constants, {"num_warps": 4}
    for rows in (1, 512):
        yield (
            f"int8 by int8 {rows}",
            multiply,
            *product(table, FORMS["int8"], rows, kinds.INTEGERS.value, dtype),
        )
        for name, runs in (("e4m3", False), ("e4m3 blocks", True)) if float8 else ():
            yield (
                f"{name} by e4m3 {rows}",
                multiply,
                *product(table, FORMS[name], rows, kinds.FLOATS.value, dtype, fnuz, runs),
            )
        for name, given in SCALED[:scaled]:
            how, x_kind = kinds.MICROSCALED.value, kind_of(given)
            yield f"{name} by {given} {rows}", multiply, *product(table, FORMS[name], rows, how, dtype, x_kind=x_kind)
    for sums in ("fp32", "i32"):
        constants = {"FACTORS": True, "SCALED": True, "BIASED": True, "BLOCK_M": 16, "BLOCK_N": table["merge"]["n"]}
        yield f"merge {sums}", merge, {"sums": f"*{sums}", "out": f"*{dtype}"}, constants, {"num_warps": 4}
    for name, how in ROUNDINGS.items():
        for coded in (False, True):
            scaled_bytes = coded and how.run in (16, 32)
            constants = {"KIND": how.kind, "POWER": how.power, "WHOLE": bool(how.largest), "CODES": coded}
            constants["BYTES"] = scaled_bytes
            constants |= {"RUN": how.run or 16384, "BLOCK": 16384}
            constants |= ({} if how.largest else {"whole": None}) | ({} if coded else {"scales": None})
            out = dtype if not coded else "i8" if how.kind == 0 else "u8"
            pointers = {"x": f"*{dtype}", "out": f"*{out}", "scales": "*u8" if scaled_bytes else "*fp32"}
            yield f"{name} {coded:d}", round_rows, pointers, constants, {"num_warps": 16}


def main(name, dtype, ones, *wanted):
    target, sections = target_of(name)
    found = {}
    arch = name.partition(":")[2]
    float8 = int(arch) >= 89 if arch.isdigit() else arch in ("gfx942", "gfx950")
    scaled = {"100": 4, "120": 4, "gfx950": 3}.get(arch, 0)
    table = sizes("products", sections)
    for job, kernel, pointers, constants, options in jobs(table, NAMES[dtype], float8, arch == "gfx942", scaled):
        if wanted and job not in wanted:
            continue
        types = {**POINTERS, **pointers}
        if ones == "ones":
            constants |= {one: 1 for one in kernel.arg_names if one not in constants and one not in types}
        signature = {one: "constexpr" if one in constants else types.get(one, "i32") for one in kernel.arg_names}
        source = ASTSource(kernel, signature, constants)
        try:
            made = triton.compile(source, target=target, options=options)
            found[job] = made.metadata.shared
            if constants.get("HOW") == kinds.MICROSCALED.value:
                text = made.asm.get("ptx") or made.asm["amdgcn"]
                found[f"{job}: scaled"] = len(re.findall("block_scale|mfma_scale", text))
        except Exception as error:
            raise RuntimeError(f"{job} for {name}: {error}") from error
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
