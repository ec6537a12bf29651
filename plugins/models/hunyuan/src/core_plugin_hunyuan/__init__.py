"""HunYuan decoders, dense and with experts."""
