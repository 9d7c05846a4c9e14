"""Environments as pure functions, and the Gymnasium classes that run them."""
