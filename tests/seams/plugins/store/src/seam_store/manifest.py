"""The descriptor."""

from core.api import KVConnectorSpec

STORE = KVConnectorSpec(
    name="seam_store",
    impl="seam_store.store:Store",
    worker_impl="seam_store.store:StoreWorker",
    api=2,
    summary="Blocks of every engine of this process, by their hashes alone",
)
