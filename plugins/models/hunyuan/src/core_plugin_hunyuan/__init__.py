"""HunYuan dense decoders."""
