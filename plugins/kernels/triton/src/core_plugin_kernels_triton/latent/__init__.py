"""Multi-head latent attention in its absorbed form, whole or limited to picked positions, and what picks these."""
