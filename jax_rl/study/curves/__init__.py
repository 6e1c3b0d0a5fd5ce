"""Curves over batches and along runs."""
