"""Solar Pro dense decoders."""
