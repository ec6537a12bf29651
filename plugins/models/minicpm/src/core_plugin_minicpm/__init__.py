"""MiniCPM dense decoders."""
