"""Mixtures of experts: routing, and products of each token with its own experts' weights."""
