"""Worlds as pure functions over arrays, and the Gymnasium environments that run them."""
