"""The model file and what is written to it."""
