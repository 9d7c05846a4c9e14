"""`python -m dgvf_agents.cli`."""

from dgvf_agents.cli import main

if __name__ == "__main__":
    main()
