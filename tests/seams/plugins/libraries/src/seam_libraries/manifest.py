"""Backends over libraries of kernels, for CPU tensors and the tiny models' float32 and sizes."""

from core_plugin_aiter.manifest import AITER as AMD
from core_plugin_flash_attn.manifest import FLASH_ATTN as FLASH2
from core_plugin_flash_attn.manifest import FLASH_ATTN_3 as FLASH3
from core_plugin_flashinfer.manifest import FLASHINFER as INFER
from core_plugin_flashmla.manifest import FLASHMLA as MLA
from core_plugin_xpu_kernels.manifest import XPU_KERNELS as INTEL


def on_cpu(spec, name, **changes):
    """Return a backend as one for CPU tensors, chosen by name alone; no release of its library is asked for."""
    here = {"devices": {"cpu"}, "dtypes": {"float32"}, "kv_dtypes": {"float32"}, "maturity": "experimental"}
    return spec.replace(name=name, requires=(), refine=None, **here, **changes)


# Pages of 16 tokens: those of 256 would hold all that a tiny model sees.
FLASH_ATTN = on_cpu(FLASH2, "seam_flash_attn", block_multiple=16)
FLASH_ATTN_3 = on_cpu(FLASH3, "seam_flash_attn_3")
FLASHINFER = on_cpu(INFER, "seam_flashinfer", head_dims=None)
FLASHMLA = on_cpu(MLA, "seam_flashmla", block_multiple=16)
AITER = on_cpu(AMD, "seam_aiter", head_dims=None)
XPU_KERNELS = on_cpu(INTEL, "seam_xpu_kernels", head_dims=None)
