"""The experiments: their settings, runs, tables, figures and verdicts."""
