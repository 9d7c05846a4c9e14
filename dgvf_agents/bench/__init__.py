"""Benchmarks: `dgvf bench ...`. Every number is a ratio or a rate measured side by side in one run."""
