"""What Stable-Baselines3 and the core see of each other."""
