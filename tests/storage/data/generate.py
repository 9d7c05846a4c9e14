"""Writes the model files that `test_saved_files` loads: `python -m tests.storage.data.generate`.

The files are committed and stay as they are: they show that this version reads files of an earlier one.
"""

from __future__ import annotations

from pathlib import Path

from dgvf_agents import DGVFA2C
from dgvf_agents.storage.model_file import ModelFile
from dgvf_agents.storage.saving import networks_only
from dgvf_envs.sb3_adapter import make_vec
from tests.storage.test_resume import SaveAt

FOLDER = Path(__file__).parent


def puddle_world():
    return make_vec("PuddleWorld-v0", 4, 0, env_kwargs={"max_episode_steps": 9, "start": "random"})


def main() -> None:
    model = DGVFA2C(
        "PaperMlpPolicy",
        puddle_world(),
        policy_kwargs={"features_extractor_kwargs": {"hidden": (8,)}},
        questions=3,
        unroll_length=3,
        seed=0,
        compile=False,
        device="cpu",
    )
    model.learn(240, SaveAt(FOLDER / "mid_rollout.zip", 5 * 20 + 12))
    model.save(FOLDER / "later.zip")
    file = ModelFile.from_bytes((FOLDER / "later.zip").read_bytes())
    (FOLDER / "networks_only.zip").write_bytes(networks_only(file).to_bytes())


if __name__ == "__main__":
    main()
