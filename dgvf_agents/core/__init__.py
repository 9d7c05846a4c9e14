"""The mathematics: pure functions over time-major tensors."""
