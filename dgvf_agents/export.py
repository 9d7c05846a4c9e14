"""`dgvf export`: a trained agent as a folder that model hubs show.

FOLDER/README.md              the card: how to load the agent, and its return
FOLDER/config.json            the model but for its tensors; see `dgvf_agents.storage.model_file`
FOLDER/model.safetensors      its tensors
FOLDER/learning-curve.png     from training
FOLDER/question.png           the question that the policy relies on most, where an atlas can be drawn
FOLDER/replay.mp4             an episode, where MoviePy is installed and the environment renders
"""

from __future__ import annotations

import json
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from dgvf_agents.atlas.page import draw_question
from dgvf_agents.storage.model_file import networks_only, read_model_file
from dgvf_agents.train.checkpoint import algorithm_of
from dgvf_agents.train.config import TrainConfig
from dgvf_agents.train.environments import can_be_shown
from dgvf_agents.train.evaluate import evaluate
from dgvf_agents.train.folder import RunFolder
from dgvf_agents.train.recorder import plot_learning_curve
from dgvf_agents.train.watch import watch

_STEPS = 1_000
"""Of the video, at most."""


def export(run: Path, folder: Path, episodes: int = 100) -> Path:
    """Write a folder that a model hub shows and `load` reads: no pickle, nothing of the machine, no connection.

    Args:
        run: the run folder, or the name of a shipped run; its latest checkpoint is exported, without what only training
            needs.
        folder: the folder to write.
        episodes: episodes of the evaluation ≥ 1.

    Returns:
        The card.

    Raises:
        FileExistsError: there is something in the folder.
        FileNotFoundError: there is no run, or it has no checkpoint.
        ValueError: `episodes` < 1.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"folder must be new or empty, got {folder}")
    source = RunFolder.existing(run)
    config = source.read_config()
    checkpoint = source.latest_checkpoint()
    agent, returns = algorithm_of(config).__name__, evaluate(run, episodes)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=".export-") as temporary:
        written = Path(temporary, folder.resolve().name)
        networks_only(read_model_file(checkpoint)).write_folder(written)
        plot_learning_curve(source, config, written / "learning-curve.png")
        with suppress(ValueError):  # it has no questions, or no atlas can be drawn in its world
            draw_question(run, written / "question.png")
        if find_spec("moviepy") is not None and can_be_shown(config):
            watch(run, episodes=1, seed=0, video=written / "replay.mp4", steps=_STEPS)
        card = _card(agent, config, int(checkpoint.stem), written, returns, episodes)
        (written / "README.md").write_text(card, encoding="utf-8")
        written.replace(folder)  # whole, or not at all
    return folder / "README.md"


def _card(
    agent: str, config: TrainConfig, steps: int, folder: Path, returns: tuple[float, float], episodes: int
) -> str:
    """Markdown with the metadata that hubs read."""
    mean = f"{returns[0]:.2f} +/- {returns[1]:.2f}"
    shown = {
        "replay.mp4": '<video src="replay.mp4" controls autoplay loop></video>',
        "question.png": "The question that the policy relies on most:\n\n![A question](question.png)",
        "learning-curve.png": "Training:\n\n![Learning curve](learning-curve.png)",
    }
    parts = "\n\n".join(text for name, text in shown.items() if (folder / name).exists())
    return f"""---
library_name: dgvf
tags: [reinforcement-learning, deep-reinforcement-learning, stable-baselines3, {json.dumps(config.env)}]
model-index:
- name: {agent}
  results:
  - task: {{type: reinforcement-learning, name: reinforcement-learning}}
    dataset: {{type: {json.dumps(config.env)}, name: {json.dumps(config.env)}}}
    metrics:
    - {{type: mean_reward, name: mean_reward, value: {mean}, verified: false}}
---

# {agent} on {config.env}

Auxiliary task: {config.task}. Return {mean} (mean and standard deviation over {episodes} episodes, sampled actions).

```python
from dgvf_agents import {agent}

model = {agent}.load({folder.name!r})
action, state = model.predict(model.observation_space.sample())
```

Written by dgvf {version("dgvf")} after {steps:,} environment steps of training.

{parts}
"""
