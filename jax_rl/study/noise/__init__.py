"""The gradient noise scale: per run, per batch, and split between and within prompts."""
