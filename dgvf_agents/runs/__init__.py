"""A training run on disk, from its configuration to its learning curve: `dgvf train` and what looks at runs."""
