"""Compiles kernels of layers for cards that are not here: run by `test_triton_layers_compile` in a process of its own.

Arguments: `cuda:90` or `hip:gfx942`, the dtype of activations, and parts to compile (all by default). Prints JSON:
bytes of shared memory of each kernel.
"""

import json
import sys

import triton
from core_plugin_kernels_triton.experts import multiply, route, sort
from core_plugin_kernels_triton.ops.tiles import power_of_two
from core_plugin_kernels_triton.tables import sizes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def target_of(name):
    """Return Triton's target and the sections of its table."""
    backend, _, arch = name.partition(":")
    if backend == "hip":
        return GPUTarget("hip", arch, 32 if arch.startswith("gfx1") else 64), ("default", "hip", name)
    return GPUTarget("cuda", int(arch), 32), ("default", "cuda", f"cuda:{arch[:-1]}.{arch[-1]}")


def experts(dtype, sections):
    """Yield name, kernel, types of arguments other than int32, constants, and options."""
    table = sizes("experts", sections)
    m, n, k, warps, stages = (table["multiply"][one] for one in ("m", "n", "k", "warps", "stages"))
    for into in (False, True):
        for few in (False, True):
            types = {**dict.fromkeys(("x", "weight", "bias", "out"), f"*{dtype}")}
            types |= dict.fromkeys(("order", "starts"), "*i32")
            constants = {"TOP_K": 8, "INTO": into, "BIASED": few, "FEW": few}
            constants |= {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
            constants |= {} if few else {"bias": None}
            options = {"num_warps": warps, "num_stages": stages}
            yield f"multiply {into:d}{few:d}", multiply.multiply_kernel, types, constants, options
    types = {"results": f"*{dtype}", "weights": "*fp32", "ids": "*i32", "out": f"*{dtype}"}
    constants = {"TOP_K": 8, "ROWS": 1, "BLOCK": table["total"]["tile"]}
    yield "total", multiply.total_kernel, types, constants, {"num_warps": 8}
    kinds = power_of_two(256 + 1)
    constants = {"BLOCK": table["sort"]["block"], "STEP": sort.step_of(table["sort"], kinds), "EXPERTS": kinds}
    for name, kernel in (("count", sort.count_kernel), ("place", sort.place_kernel)):
        yield name, kernel, dict.fromkeys(("ids", "counts", "order", "starts"), "*i32"), constants, {"num_warps": 4}
    types = {**dict.fromkeys(("logits", "correction", "weights"), "*fp32"), "ids": "*i32"}
    types |= dict.fromkeys(("eps", "factor", "cap"), "fp32")
    for rule, (score, groups) in enumerate(((0, 1), (1, 8), (2, 1))):
        constants = {"TOP_K": 8, "SCORE": score, "CHOSEN_ONLY": False, "CORRECTED": True, "GROUPS": groups}
        constants |= {"TOP_GROUPS": max(1, groups // 2), "BY_TWO": True, "RENORMALIZE": True, "CAPPED": rule == 0}
        constants |= {"ROWS": 4, "EXPERTS": 256, "PLACES": 8}
        yield f"route {rule}", route.route_kernel, types, constants, {"num_warps": 4}


PARTS = {"experts": experts}


def main(name, dtype, *wanted):
    target, sections = target_of(name)
    found = {}
    for part in wanted or PARTS:
        for job, kernel, types, constants, options in PARTS[part](NAMES[dtype], sections):
            names = kernel.arg_names
            signature = {one: "constexpr" if one in constants else types.get(one, "i32") for one in names}
            source = ASTSource(kernel, signature, {one: constants[one] for one in names if one in constants})
            found[job] = triton.compile(source, target=target, options=options).metadata.shared
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
