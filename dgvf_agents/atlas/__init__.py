"""The question atlas: what the questions of a trained agent ask, at every state of its world or along a game.

domain (where to ask) -> probe (networks) -> metrics, captions -> report -> figures -> page, live
"""

from dgvf_agents.atlas import domains as domains  # registers them
