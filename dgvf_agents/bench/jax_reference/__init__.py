"""The discovery loop on both worlds in JAX, compiled whole: a reference for the speed of ours."""
