"""IMPALA with an auxiliary task."""
