"""How far an engine's tokens are from those of float32: `python -m benchmarks.accuracy`."""
