"""Compiles kernels of layers for cards that are not here: run by `test_triton_layers_compile` in a process of its own.

Arguments: `cuda:90` or `hip:gfx942`, the dtype of activations, and parts to compile (all by default). Prints JSON:
bytes of shared memory of each kernel.
"""

import json
import sys

import torch
import triton
from core_plugin_kernels_triton.experts import launches, multiply, route, sort, tiles
from core_plugin_kernels_triton.latent import attend, expand, form, merge, picks, store
from core_plugin_kernels_triton.ops.tiles import power_of_two
from core_plugin_kernels_triton.products import layers
from core_plugin_kernels_triton.products.cards import Card
from core_plugin_kernels_triton.products.kernels.kinds import MICROSCALED, OPENED
from core_plugin_kernels_triton.products.rounding import kind_of
from core_plugin_kernels_triton.products.stored import BLOCKS, stored
from core_plugin_kernels_triton.recurrent import attention, chunks, conv, key_chunks, prompts, scan, steps
from core_plugin_kernels_triton.tables import sizes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from core.api import WeightForm
from core.api.attention import AttentionContext, LatentSite

NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
KINDS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


LINES = ("key_dim", "value_dim", "heads", "q_token", "q_head", "k_token", "k_head", "v_token", "v_head", "slot_stride")
TENSORS = ("q", "k", "v", "decay", "beta", "out", "memory", "kept", "pseudo", "reads", "queries", "keys")
BY_CHUNKS = (chunks.chunk_kernel, key_chunks.key_chunk_kernel, steps.step_kernel)
ALIGNED = {kernel: {*LINES, *TENSORS} for kernel in BY_CHUNKS}
"""Arguments that are multiples of 16, as those of a model are: only then are tiles copied to shared memory ahead."""


def target_of(name):
    """Return Triton's target and the sections of its table."""
    backend, _, arch = name.partition(":")
    if backend == "hip":
        return GPUTarget("hip", arch, 32 if arch.startswith("gfx1") else 64), ("default", "hip", name)
    return GPUTarget("cuda", int(arch), 32), ("default", "cuda", f"cuda:{arch[:-1]}.{arch[-1]}")


STORED = {
    "int4": WeightForm(codes="int", bits=4, inputs=128, zeros=True),
    "ordered": WeightForm(codes="int", bits=4, inputs=128, zeros=True, ordered=True),
    "int8": WeightForm(codes="int", bits=8, activations="int8:token"),
    "float8": WeightForm(codes="float8_e4m3fn", activations="float8:token"),
    "float8 blocks": WeightForm(codes="float8_e4m3fn", outputs=128, inputs=128, activations="float8:128"),
    "nf4": WeightForm(codes="nf4", inputs=64),
    "mxfp4": WeightForm(codes="e2m1", inputs=32, scale="e8m0"),
    "mxfp4 by mxfp4": WeightForm(codes="e2m1", inputs=32, scale="e8m0", activations="e2m1:32"),
    "mxfp8": WeightForm(codes="float8_e4m3fn", inputs=32, scale="e8m0", activations="float8:32"),
    "nvfp4": WeightForm(codes="e2m1", inputs=16, scale="e4m3", activations="e2m1:16"),
    **{kind: WeightForm(codes=f"gguf:{kind}") for kind in BLOCKS},
}
QUICK = ("float8 blocks", "mxfp4")
ROWS, INPUTS = 1536, 2048


def experts(dtype, sections):
    """Yield name, kernel, types of arguments other than int32, constants, and options."""
    table = sizes("experts", sections)
    tiles.tiles = lambda device: table
    multiplies = dict.fromkeys(("x", "weight", "bias", "out"), f"*{dtype}")
    multiplies |= dict.fromkeys(("order", "starts"), "*i32")
    tile = tiles.plain_tile(None, ROWS, INPUTS)
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    absent = dict.fromkeys(("x_scales", "x_factors", "scales", "zeros", "group_of", "table", "row_scales"))
    for into in (False, True):
        for few in (False, True):
            constants = {**launches._PLAIN, **absent, "TOP_K": 8, "INTO": into, "SORTED": not into, "BIASED": few}
            constants |= {"FEW": few, "BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k}
            constants |= {} if few else {"bias": None}
            yield f"multiply {into:d}{few:d}", multiply.multiply_kernel, multiplies, constants, options
    for name in QUICK:
        yield f"stored {name}", multiply.multiply_kernel, *stored_product(STORED[name], dtype, sections)
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


def latent(dtype, sections):
    """Yield the same of latent attention: DeepSeek V3's sizes, caches of the compute dtype and of float8."""
    table = sizes("latent", sections)
    form.tiles = lambda device: table
    for float8 in (False, True):
        kept = torch.float8_e4m3fn if float8 else KINDS[dtype]
        context = AttentionContext(torch.device("cpu"), KINDS[dtype], kept, 16)
        f = form.form_of(LatentSite(0, 128, 512, 64, 128, 128, 1.0), context)
        types = {**dict.fromkeys(("q", "q_rope", "out", "x"), f"*{dtype}"), "kv": "*u8" if float8 else f"*{dtype}"}
        types |= dict.fromkeys(("tables", "starts", "lengths", "picked"), "*i32")
        types |= dict.fromkeys(("sums_out", "tops_out", "sums_in", "tops_in"), "*fp32")
        types |= {"scale": "fp32", "slots": "*i64"}
        same = {"HEADS": f.heads, "LATENT_DIM": f.latent_dim, "ROPE_DIM": f.rope_dim, "BLOCK_L": f.latent_width}
        same |= {"BLOCK_R": f.rope_width, "BLOCK_SIZE": 16, "FLOAT8": f.float8, "BLOCK_M": f.m, "BLOCK_N": f.n}
        same |= {"KEY_DIM": f.key_dim, "VALUE_DIM": f.value_dim, "FEWEST": f.fewest}
        same |= {"SPLIT": f.split, "SPLITS": f.splits, "MOST": form.FEW}
        options = {"num_warps": f.warps, "num_stages": f.stages}
        for kind in range(3):
            constants = {**same, "KIND": kind, "PICKS": 2048 if kind == 2 else 0}
            constants |= {} if kind == 2 else {"picked": None}
            yield f"latent {kind}{float8:d}", attend.latent_kernel, types, constants, options
        yield f"merge {float8:d}", merge.latent_merge_kernel, types, same, {"num_warps": 4}
        wide = {"KEY_DIM": 128, "VALUE_DIM": 128, "BLOCK_K": f.key_width, "BLOCK_V": f.value_width, "BLOCK_M": f.wide_m}
        wide |= {"HEADS": f.heads, "ROPE_DIM": f.rope_dim, "BLOCK_R": f.rope_width, "BLOCK_N": f.wide_n}
        types |= {"sums_kept": "*fp32", "tops_kept": "*fp32"}
        types |= dict.fromkeys(("keys", "turned", "values"), f"*{dtype}") | {"table": "*i32"}
        wide_options = {"num_warps": f.wide_warps, "num_stages": f.wide_stages}
        for begun, done in () if float8 else ((False, True), (True, False)):
            constants = {**wide, "BEGUN": begun, "DONE": done}
            yield f"expanded {begun:d}", expand.expanded_kernel, types, constants, wide_options
        constants = {"WIDTH": 576, "BLOCK": 1024, "BLOCK_SIZE": 16, "FLOAT8": f.float8, "ROWS": f.stored}
        yield f"open {float8:d}", expand.open_kernel, types, constants, {"num_warps": 4}
        constants = {"WIDTH": 512, "BLOCK": 512, "BLOCK_SIZE": 16, "FLOAT8": f.float8, "ROWS": table["stored"]}
        yield f"store {float8:d}", store.store_row_kernel, types, constants, {"num_warps": 4}
        tile = table["scores"]
        constants = {"HEADS": 64, "KEY_DIM": 128, "BLOCK_H": 64, "BLOCK_D": 128, "BLOCK_SIZE": 16, "FLOAT8": f.float8}
        constants |= {"BLOCK_N": tile["n"]}
        types = {**types, "out": "*fp32", "weights": "*fp32"}
        options = {"num_warps": tile["warps"], "num_stages": tile["stages"]}
        yield f"scores {float8:d}", picks.score_kernel, types, constants, options


def recurrent(dtype, sections):
    """Yield the same of recurrences."""
    table = sizes("recurrent", sections)
    types = dict.fromkeys(("x", "weight", "bias", "out", "q", "k", "v", "b", "c"), f"*{dtype}")
    types |= dict.fromkeys(("memory", "decay", "beta", "step", "a"), "*fp32")
    types |= {"slots": "*i64", "fresh": "*i64", "starts": "*i32", "scale": "fp32"}
    tile = table["conv"]
    constants = {"WIDTH": 4, "BIASED": True, "ACTIVATED": True, "TOKENS": tile["tokens"], "BLOCK": tile["channels"]}
    yield "conv", conv.conv_kernel, {**types, "memory": f"*{dtype}"}, constants, {"num_warps": 4}
    yield "conv state", conv.conv_state_kernel, {**types, "memory": f"*{dtype}"}, constants, {"num_warps": 4}
    tile = table["attention"]
    for delta, per_key in ((True, False), (False, True)):
        constants = {"DELTA": delta, "PER_KEY": per_key, "FEWEST": tile["fewest"]}
        constants |= {"BLOCK_K": 128, "BLOCK_V": tile["values"]} | ({} if delta else {"beta": None})
        yield f"linear {delta:d}", attention.linear_kernel, types, constants, {"num_warps": 4}
    yield from by_chunks(dtype, table, types)
    tile = table["scan"]
    constants = {"BLOCK": tile["tile"] // 16, "STATE": 16, "FEWEST": tile["fewest"]}
    yield "scan", scan.scan_kernel, types, constants, {"num_warps": 4}
    constants |= {"CHUNK": tile["chunk"], "BLOCK": tile["chunked"] // (tile["chunk"] * 16)}
    yield "scan by chunks", scan.chunk_kernel, types, constants, {"num_warps": 4}
    yield "gated", scan.gated_kernel, types, {"BLOCK": table["gated"]["channels"]}, {"num_warps": 4}


def by_chunks(dtype, table, types):
    """Yield the same of linear attention by chunks: of Qwen3-Next, the widest keys, Mamba 2, Kimi Linear."""
    tile, given = table["chunks"], [(True, False, 128), (True, False, 256), (False, False, 128)]
    for delta, per_key, key_dim in (*given, (True, True, 128), (False, True, 128)):
        form = prompts.form_of(tile, KINDS[dtype], key_dim, 128)
        there = {"pseudo": delta, "reads": delta, "queries": delta or per_key, "keys": per_key}
        kinds = {**types, "kept": "*fp32"} | dict.fromkeys(there, "*fp32" if form.wide else "*bf16")
        same = {"DELTA": delta, "FEWEST": table["attention"]["fewest"], **form.constants()}
        same |= dict.fromkeys(name for name, found in {**there, "beta": delta}.items() if not found)
        options = {"num_warps": tile["warps"], "num_stages": tile["stages"]}
        kernel, name = key_chunks.key_chunk_kernel if per_key else chunks.chunk_kernel, f"{key_dim}{delta:d}{per_key:d}"
        yield f"chunk {name}", kernel, kinds, {**same, "BLOCK": form.block}, options
        same |= {"BLOCK_K": form.keys, "BLOCK_V": form.values, "PER_KEY": per_key}
        options = {"num_warps": tile["step_warps"], "num_stages": tile["step_stages"]}
        yield f"step {name}", steps.step_kernel, kinds, same, options


def other_forms(dtype, sections):
    """Yield the same of experts in further forms."""
    table = sizes("experts", sections)
    tiles.tiles = lambda device: table
    for name in STORED.keys() - QUICK:
        yield f"stored {name}", multiply.multiply_kernel, *stored_product(STORED[name], dtype, sections)


def stored_product(weights, dtype, sections):
    """Return types, constants and options of a product of a form, biased, for few tokens."""
    one, arch = stored(weights, ROWS, INPUTS), sections[-1].partition(":")[2]
    float8 = arch in ("gfx942", "gfx950", "8.9", "9.0", "10.0", "12.0")
    scales = {"10.0": ("e8m0", "e4m3"), "12.0": ("e8m0", "e4m3"), "gfx950": ("e8m0",)}.get(arch, ())
    layers.card = lambda device: Card(float8, arch == "gfx942", frozenset(scales))
    how = layers.how(weights, None)
    opened = how == OPENED.value
    scaled = how == MICROSCALED.value
    tile = tiles.stored_tile(None, ROWS, INPUTS, 8 if not opened else 32 if dtype == "fp32" else 16, scaled=scaled)
    types = dict.fromkeys(("x_scales", "x_factors", "zeros", "table", "row_scales", "bias"), "*fp32")
    types |= {"x": f"*{dtype}" if opened else "*i8" if weights.codes == "int" else "*u8", "out": f"*{dtype}"}
    types |= {"weight": "*u8", "scales": "*fp32" if weights.scale == "float32" else "*u8"}
    types |= dict.fromkeys(("group_of", "order", "starts"), "*i32")
    constants = {"TOP_K": 8, "INTO": True, "SORTED": False, "BIASED": True, "FEW": True, "KIND": one.kind}
    constants |= {"BITS": one.bits, "SCALE": one.scale, "GROUP": one.group, "ZEROS": one.zeros}
    constants |= {"ORDERED": one.ordered, "SCALED": one.by_row, "HOW": how, "FNUZ": arch == "gfx942"}
    runs = not opened and weights.activations == "float8:128"
    constants |= {"RUNS": runs, "X": kind_of(weights.activations)}
    constants["FACTORS"] = not (opened or runs or weights.scale == "e8m0")
    constants |= {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k}
    types |= {"x_scales": "*u8"} if scaled else {}
    there = {
        "x_scales": runs or scaled,
        "x_factors": constants["FACTORS"],
        "scales": one.grouped,
        "zeros": one.zeros,
        "group_of": one.ordered,
    }
    there |= {"table": one.table, "row_scales": one.by_row}
    constants |= dict.fromkeys(name for name, found in there.items() if not found)
    return types, constants, {"num_warps": tile.warps, "num_stages": tile.stages}


PARTS = {"experts": experts, "experts in further forms": other_forms, "latent": latent, "recurrent": recurrent}


def main(name, dtype, *wanted):
    target, sections = target_of(name)
    found = {}
    for part in wanted or PARTS:
        for job, kernel, types, constants, options in PARTS[part](NAMES[dtype], sections):
            names = kernel.arg_names
            signature = {one: "constexpr" if one in constants else types.get(one, "i32") for one in names}
            aligned = ALIGNED.get(kernel, set()) - constants.keys()
            attrs = {(i,): [["tt.divisibility", 16]] for i, one in enumerate(names) if one in aligned}
            source = ASTSource(kernel, signature, {one: constants[one] for one in names if one in constants}, attrs)
            found[job] = triton.compile(source, target=target, options=options).metadata.shared
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
