"""Filling a model's parameters from a stream of checkpoint tensors."""
