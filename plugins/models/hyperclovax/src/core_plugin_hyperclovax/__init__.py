"""HyperCLOVA X decoders."""
