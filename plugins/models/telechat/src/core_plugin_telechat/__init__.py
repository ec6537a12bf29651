"""TeleChat and Tele-FLM dense decoders."""
