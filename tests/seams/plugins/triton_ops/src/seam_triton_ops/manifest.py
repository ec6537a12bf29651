from core_plugin_kernels_triton.ops import spec
from core_plugin_kernels_triton.products import spec as products

from core_testing.fakedevice.manifest import FAKE


def here(one):
    """Return a kernel for CPU tensors, on which Triton's interpreter runs; it is used where it is asked for."""
    return one.replace(name=f"here_{one.op}", devices={"cpu"}, maturity="experimental")


RMS_NORM, ADD_RMS_NORM = here(spec.RMS_NORM), here(spec.ADD_RMS_NORM)
SILU_AND_MUL, ROTARY, LOOKUP = here(spec.SILU_AND_MUL), here(spec.ROTARY), here(spec.LOOKUP)
LINEAR = here(products.LINEAR)
STORED_LOOKUP = here(products.STORED_LOOKUP).replace(name="here_stored_lookup")
ARGMAX, DRAW = here(spec.ARGMAX), here(spec.DRAW)
MASK_TOKENS, ADD_BIAS, PENALIZE = here(spec.MASK_TOKENS), here(spec.ADD_BIAS), here(spec.PENALIZE)

EAGER = FAKE.replace(name="fake_eager", impl="seam_triton_ops.platform:Eager")
