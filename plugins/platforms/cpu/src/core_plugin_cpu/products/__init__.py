"""Products of the native library: layers multiplied with weights as they are stored, or opened to the compute dtype."""
