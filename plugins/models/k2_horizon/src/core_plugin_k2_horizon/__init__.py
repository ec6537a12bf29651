"""K2 Horizon dense decoders."""
