"""The experiment `question-transfer`: fresh agents on questions that others discovered.

An agent with seed s takes the questions that the run of `discovered` with seed s ended with. Its own seed is another,
so it shares neither its initialization nor its experience with the agent that the questions were discovered with.
"""

from __future__ import annotations

from dgvf_agents.experiments.settings import Changes, Setting, setting

PRINCIPAL_QUESTIONS = (1, 2, 4, 16)
"""Numbers of principal questions."""

OTHER_WORLDS: dict[str, Changes] = {
    "collect-objects": {"env": "CollectObjectsOpposite-v0"},
    "puddle-world": {"env": "PuddleWorldSutton-v0"},
}
"""Worlds with the same observations and another task; the small rooms have none."""


def question_transfer(world: str) -> list[Setting]:
    """What is compared on a world."""
    source, other = setting(world, "discovered"), _other(world)
    return [
        source,
        setting(world, "random"),
        setting(world, "random", "frozen", source),
        *(setting(world, "random", f"principal-{k}", source, principal_questions=k) for k in PRINCIPAL_QUESTIONS),
        *(setting(world, "random", "other-world", found) for found in other),
    ]


def question_sources(world: str) -> list[Setting]:
    """The settings whose questions are taken."""
    return [setting(world, "discovered"), *_other(world)]


def _other(world: str) -> list[Setting]:
    """Discovered questions in the other world, if there is one."""
    return [setting(world, "discovered", "other-world", **OTHER_WORLDS[world])] if world in OTHER_WORLDS else []
