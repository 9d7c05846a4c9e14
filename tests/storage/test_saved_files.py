"""Files that an earlier version wrote load, and training goes on from them as it did then."""

from __future__ import annotations

import torch

from dgvf_agents import DGVFA2C
from tests.storage.data.generate import FOLDER, puddle_world

ROUNDING = {"rtol": 1e-3, "atol": 1e-5}
"""Another processor rounds differently; the same one does not."""


def test_training_goes_on_from_the_middle_of_a_rollout_and_of_an_unroll() -> None:
    model = DGVFA2C.load(FOLDER / "mid_rollout.zip", puddle_world(), device="cpu")
    assert model.num_timesteps == 112
    model.learn(240 - 112, reset_num_timesteps=False)
    later = DGVFA2C.load(FOLDER / "later.zip", device="cpu")
    assert model.num_timesteps == later.num_timesteps == 240
    assert model.meta_updates == later.meta_updates == 3
    expected = later.get_parameters()
    for name, state in model.get_parameters().items():
        torch.testing.assert_close(state, expected[name], **ROUNDING)


def test_a_file_for_prediction_acts_as_the_complete_one() -> None:
    complete = DGVFA2C.load(FOLDER / "later.zip", device="cpu")
    reduced = DGVFA2C.load(FOLDER / "networks_only.zip", device="cpu")
    observations = torch.rand(50, 2, generator=torch.Generator().manual_seed(0))
    _, values, log_prob = complete.policy(observations, deterministic=True)
    assert values.std() > 0
    _, same_values, same_log_prob = reduced.policy(observations, deterministic=True)
    torch.testing.assert_close(same_values, values)
    torch.testing.assert_close(same_log_prob, log_prob)
