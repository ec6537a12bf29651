"""Intel GPUs."""
