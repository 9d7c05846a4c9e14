"""The `dgvf` command."""

from __future__ import annotations

from collections.abc import Sequence

import tyro
from tyro.extras import SubcommandApp

from dgvf_agents.bench import envs as bench_envs

bench = SubcommandApp()
app = SubcommandApp()
app.command(bench, name="bench", help="Measure speed, side by side in one run.")


@bench.command(name="envs")
def _bench_envs(benchmark: tyro.conf.OmitArgPrefixes[bench_envs.EnvsBenchmark]) -> None:
    """Environment steps per second: our vector environments beside SyncVectorEnv over our scalar ones."""
    bench_envs.run(benchmark)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command with `arguments`, or with those of the process."""
    app.cli(prog="dgvf", description="Discovered questions as auxiliary tasks.", args=arguments)
