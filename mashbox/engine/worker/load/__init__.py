"""Weights and configs from disk into transformers modules."""
