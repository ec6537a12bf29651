"""XGLM decoders."""
