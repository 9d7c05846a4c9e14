"""How the mathematics runs: parameters packed into one vector, compilation, devices."""
