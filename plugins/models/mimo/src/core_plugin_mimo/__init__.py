"""MiMo-V2 decoders."""
