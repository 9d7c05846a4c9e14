"""The part of the page of benchmarks on IMPALA, and what its parts predict for a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from generated import measured, table

from dgvf_agents.bench.impala import AGENTS, PLAIN, speed_rows

_CLUSTER_ACTORS, _BATCH = 200, 32 * 20
"""The paper's actors, and steps of its batch."""
_GPU, _GPU_TFLOPS = "an NVIDIA A100", 19.5
_EFFICIENCIES = (0.05, 0.1, 0.2, 0.4)
_PUBLISHED = 24_400 / 4
"""CleanBA's agent steps per second with one A100 and 10 cores (Huang et al. 2023): 24,400 frames/s, 4 frames a step."""


def impala(reports: Sequence[dict[str, Any]]) -> str:
    """Training speed of IMPALA, from a report on gridworlds, others on games, and others of learners on GPUs."""
    on_gpu = [report for report in reports if "accelerator" in report["hardware"]]
    others = [report for report in reports if report not in on_gpu]
    return "\n\n".join(
        ["## IMPALA", _ABOUT, *(_one(report, on_gpu) for report in others), *map(_learner_on_gpu, on_gpu)]
    )


_ABOUT = """Environment steps per second that the learner is trained on. 0 actors: acting and learning take turns in one
process. RLlib's IMPALA has as many environment runners as the row with most actors, the same network, environments and
batch; *To RLlib* is the ratio to the fastest of its variants. RLlib's updates are not compiled, which is its default.
Its network is our code too, but where the table says *in plain PyTorch*: there it is the same network as a sequence of
PyTorch's modules. *bfloat16 encoder* is IMPALA with `mixed_precision=True`, beside which RLlib computes in float32, its
default; it is fast only on processors that compute bfloat16 in hardware. Discovered GVFs have D = 128 questions; the
last column is their time per step relative to IMPALA's with as many actors. The agents take turns within one run. See
[Distributed actors](impala.md#distributed-actors)."""


def _one(report: dict[str, Any], on_gpu: Sequence[dict[str, Any]]) -> str:
    settings = report["settings"]
    speeds = [row for row in report["rows"] if row["measure"] == "speed"]
    cells = [
        (row["world"], row["agent"], row["actors"], f"{row['rate']:,.0f}", row["to_rllib"], row["time"])
        for row in speed_rows(speeds)
    ]
    headings = ("Environment", "Agent", "Actors", "Steps/s", "To RLlib", "Time, to IMPALA")
    threads = settings.get("threads", 1)
    learner = "" if threads == 1 else f" PyTorch has {threads} threads where the learner is."
    eager = "" if settings.get("compile", True) else "Our updates are not compiled here either. "
    return f"""{eager}With {settings["n_envs"]} environments, rollouts of {settings["n_steps"]} steps and unrolls of
L = {settings["unroll_length"]} updates; medians of {settings["repetitions"]} repetition(s) of at least
{settings["seconds"]:g} seconds.{learner}

{table(headings, cells, right=(2, 3, 4, 5))}
{_to_plain(speeds)}
{_parts(report)}
{_cluster(report, on_gpu)}
{measured(report)}"""


def _to_plain(speeds: Sequence[dict[str, Any]]) -> str:
    """The ratio to RLlib with the network in plain PyTorch, where that was measured."""
    found = []
    for row in speeds:
        rates = row["steps_per_s"]
        if PLAIN in rates:
            best, fastest = (max(rates[n] for n in rates if n.startswith(start)) for start in ("none-", "rllib-"))
            found.append(
                f"On {row['world']}, IMPALA in float32 trains at most {best / rates[PLAIN]:.2f} times as fast as "
                f"RLlib's with the network in\nplain PyTorch, and {best / fastest:.2f} times as fast as with ours.\n"
            )
    return "\n" + "\n".join(found) if found else ""


def _parts(report: dict[str, Any]) -> str:
    """What a batch costs part by part."""
    names = ("environment_ms", "acting_ms", "transport_ms", "update_none_ms")
    cells = []
    for row in _rows(report):
        total = sum(row[name] for name in names)
        shares = [f"{row[name]:.1f} ({row[name] / total:.0%})" for name in names]
        extra = (f"{row['update_discovered_ms']:.1f}", f"{row['update_none_gflop']:.2f}")
        cells.append((row["world"], *shares, *extra, f"{row['rollout_bytes'] / 1000:,.0f}"))
    headings = ("Environment", "Environments", "Acting", "Transport", "Update", "Update, discovered", "GFLOP", "kB")
    return f"""Milliseconds per batch of IMPALA's parts, measured one by one on one core, with their share of the sum.
*Transport* is the transfer of a batch through Ray's object store into the learner's tensors. *GFLOP* counts the
operations of an update without questions, *kB* is the size of a transferred batch:

{table(headings, cells, right=range(1, 8))}"""


def _cluster(report: dict[str, Any], on_gpu: Sequence[dict[str, Any]]) -> str:
    """A model on paper of many actors and one GPU, empty without a game.

    Args:
        report: with the parts of a game.
        on_gpu: reports of learners that were measured.
    """
    games = [row for row in _rows(report) if "-v" not in row["world"]]
    if not games:
        return ""
    row, measured_steps = games[0], report["settings"]["n_envs"] * report["settings"]["n_steps"]
    gflop, rollouts = (row[name] * _BATCH / measured_steps for name in ("update_none_gflop", "rollout_bytes"))
    of_actors = _CLUSTER_ACTORS * measured_steps / (1e-3 * (row["environment_ms"] + row["acting_ms"]))
    learners = [(f"{e:.0%}", 1e3 * 1e9 * gflop / (1e12 * _GPU_TFLOPS * e)) for e in _EFFICIENCIES]
    for other in on_gpu:
        scale = _BATCH / (other["settings"]["n_envs"] * other["settings"]["n_steps"])
        updates = [scale * update["update_none_ms"] for update in _rows(other) if update["world"] == row["world"]]
        learners += [(f"{other['hardware']['accelerator']}, measured", ms) for ms in updates]
    cells = []
    for learner, ms in learners:
        of_learner = 1e3 * _BATCH / ms
        rate = min(of_actors, of_learner)
        used = rate / _BATCH
        cells.append(
            (
                learner,
                f"{ms:.1f}",
                f"{of_learner:,.0f}",
                f"{rate:,.0f}",
                "actors" if of_actors < of_learner else "learner",
                f"{1e-6 * used * rollouts:,.0f}",
                f"{1e-6 * used * row['parameter_bytes']:,.0f}",
            )
        )
    headings = (
        "Efficiency",
        "ms per batch",
        "Learner, steps/s",
        "Steps/s",
        "Limit",
        "Rollouts, MB/s",
        "θ per node, MB/s",
    )
    return f"""
### A cluster, computed

What these parts predict for {_CLUSTER_ACTORS} actors on {row["world"]}, each on a core like this one, and a learner on
{_GPU} with {_GPU_TFLOPS} TFLOP/s in float32 (its data sheet). This is arithmetic, not a measurement: nobody has run it.
{_CLUSTER_ACTORS} actors collect {of_actors:,.0f} steps/s. The learner's arithmetic is {gflop:.0f} GFLOP per batch of
{_BATCH} steps; which part of its peak that GPU reaches on this network is unknown, so the table has several. Where
another GPU's learner was [measured](#the-learner-on-a-gpu), a row has its time. θ goes once per update to every node,
where its actors share it.

{table(headings, cells, right=(0, 1, 2, 3, 5, 6))}

For comparison, CleanBA reports 24,400 frames/s, {_PUBLISHED:,.0f} steps/s of 4 frames, with one A100 and 10 cores
(Huang et al. 2023), where actors use the GPU too.
"""


def _learner_on_gpu(report: dict[str, Any]) -> str:
    """What an update takes on a GPU."""
    settings, cells = report["settings"], []
    steps = settings["n_envs"] * settings["n_steps"]
    for row in _rows(report):
        for agent, words in AGENTS.items():
            if (ms := row.get(f"update_{agent}_ms")) is not None:
                rate = 1e-12 * 1e9 * row[f"update_{agent}_gflop"] / (1e-3 * ms)
                cells.append((row["world"], words, f"{ms:.1f}", f"{1e3 * steps / ms:,.0f}", f"{rate:.1f}"))
    headings = ("Environment", "Agent", "ms per batch", "Learner, steps/s", "TFLOP/s")
    return f"""### The learner on a GPU

Updates on {report["hardware"]["accelerator"]}, compiled and launched as CUDA graphs, with batches of {steps} steps and
unrolls of L = {settings["unroll_length"]} updates. Tests ran on the same GPU while the agents without questions were
measured. Discovered GVFs were measured alone, but before second derivatives of convolutions were taken as gradients
of weights ([Compilation](compilation.md)); their update on a GPU was not measured since.

{table(headings, cells, right=(2, 3, 4))}

{measured(report)}"""


def _rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in report["rows"] if row["measure"] == "parts"]
