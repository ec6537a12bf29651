"""MiniMax-M2 decoders."""
