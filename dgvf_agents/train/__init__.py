"""Training runs on disk: `dgvf train`, `dgvf evaluate`, `dgvf watch` and `dgvf probe`."""
