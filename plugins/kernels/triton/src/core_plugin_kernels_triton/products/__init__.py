"""Products with weights as they are stored."""
