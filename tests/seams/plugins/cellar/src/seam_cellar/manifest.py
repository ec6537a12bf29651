"""The descriptor."""

from core.api import WeightStoreSpec

CELLAR = WeightStoreSpec(
    name="cellar", impl="seam_cellar.store:Cellar", api=1, summary="Packed weights in the memory of this process"
)
