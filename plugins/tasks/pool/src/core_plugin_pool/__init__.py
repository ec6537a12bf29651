"""The task `pool`: what a model makes of a whole prompt becomes a vector."""
