"""A population: several `DGVFA2C` that differ in seed and in continuous settings, trained at once in one process."""
