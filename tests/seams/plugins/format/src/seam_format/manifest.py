from core.api import ModelSourceSpec, WeightLoaderSpec

VAULT = ModelSourceSpec(
    name="vault", impl="seam_format.source:Vault", api=1, summary="vault:NAME references", priority=90
)
VAULT_FORMAT = WeightLoaderSpec(
    name="vault", impl="seam_format.reader:VaultReader", api=1, summary="One .vault file", patterns=("*.vault",)
)
