"""Products of float8 weights by DeepGEMM."""
