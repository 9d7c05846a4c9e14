"""What may keep discovered questions at PuddleWorld's optimum: changes to the earlier preset."""

from __future__ import annotations

from dgvf_agents.experiments.settings import Changes

_LONG_EPISODES: Changes = {"env_kwargs.max_episode_steps": 1_000}
"""Of training; evaluation allows 5,000 steps."""
_SHORT_EPISODES: Changes = {"env_kwargs.max_episode_steps": 100}
"""Half of the earlier preset's, so more random starts."""
_CHOSEN_ON_A2C: Changes = {"learning_rate": 0.001, "ent_coef": 5.0, "final_ent_coef": 0.05}
"""What the search of `paper` chooses on PuddleWorld."""
_FALLING: Changes = {
    **_CHOSEN_ON_A2C,
    "final_ent_coef": 0.01,
    "auxiliary_coefficient": 0.003,
    "final_auxiliary_coefficient": 0.0003,
}
STEADY: Changes = {**_FALLING, **_SHORT_EPISODES}
"""What keeps PuddleWorld's optimum best (docs/results.md)."""
_FAST_HEADS: Changes = {**_CHOSEN_ON_A2C, "final_ent_coef": 0.015, "head_rate": 3.0}
COLLAPSES: dict[str, Changes] = {
    "preset": {},
    "long episodes": _LONG_EPISODES,
    "short episodes": _SHORT_EPISODES,
    "coefficient 0.003": {"auxiliary_coefficient": 0.003},
    "long episodes, coefficient 0.003": {**_LONG_EPISODES, "auxiliary_coefficient": 0.003},
    "final entropy 0.03": {"final_ent_coef": 0.03},
    "final entropy 0.06": {"final_ent_coef": 0.06},
    "exact convention": {"convention": "exact"},
    "inner clipping": {"max_grad_norm": 0.5},
    "constant meta rate": {"final_meta_learning_rate": None},
    "losses as sums": {"loss_reduction": "sum"},
    "coefficient falling to 0.001": {"final_auxiliary_coefficient": 0.001},
    "heads 3 times as fast": {"head_rate": 3.0},
    "heads 0.3 times as fast": {"head_rate": 0.3},
    "rate 0.001, entropy to 0.05": _CHOSEN_ON_A2C,
    "rate 0.001, entropy to 0.05, coefficient 0.003": {**_CHOSEN_ON_A2C, "auxiliary_coefficient": 0.003},
    **{
        f"rate 0.001, entropy to {entropy}, coefficient {coefficient}": {
            **_CHOSEN_ON_A2C,
            "final_ent_coef": entropy,
            "auxiliary_coefficient": coefficient,
        }
        for entropy, coefficient in ((0.03, 0.003), (0.03, 0.001), (0.02, 0.003), (0.015, 0.003))
    },
    **{
        f"rate 0.001, entropy to {entropy}, coefficient 0.003 falling to {final}": {
            **_FALLING,
            "final_ent_coef": entropy,
            "final_auxiliary_coefficient": final,
        }
        for entropy, final in ((0.02, 0.0003), (0.015, 0.0003), (0.01, 0.0003), (0.01, 0.0001), (0.007, 0.0001))
    },
    "rate 0.001, entropy to 0.01, coefficient 0.003 falling to 0.0003, long episodes": {**_FALLING, **_LONG_EPISODES},
    "rate 0.001, entropy to 0.01, coefficient 0.003 falling to 0.0003, short episodes": STEADY,
    "rate 0.001, entropy to 0.015": {**_CHOSEN_ON_A2C, "final_ent_coef": 0.015},
    "rate 0.001, entropy to 0.05, heads 3 times as fast": {**_CHOSEN_ON_A2C, "head_rate": 3.0},
    "rate 0.001, entropy to 0.015, heads 3 times as fast": _FAST_HEADS,
    "rate 0.001, entropy to 0.015, heads 3 times as fast, coefficient 0.003": {
        **_FAST_HEADS,
        "auxiliary_coefficient": 0.003,
    },
}
"""By label."""
