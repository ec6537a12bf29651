from core.api import ModelShape, PoolingShape


def shape(config):
    return ModelShape(
        vocab_size=1,
        max_positions=64,
        num_layers=1,
        hidden_size=config["hidden_size"],
        num_heads=1,
        num_kv_heads=1,
        head_dim=config["hidden_size"],
        features=frozenset({"bidirectional"}),
        dtype="float32",
        pooling=PoolingShape(task="embed", method="all", normalize=False, bidirectional=True),
    )
