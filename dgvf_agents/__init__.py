"""Actor-critic agents whose encoder is trained by discovered questions."""
