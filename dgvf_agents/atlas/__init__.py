"""The question atlas: what the questions of a trained agent ask, at every state of its world or along a game.

domain (where to ask) -> metrics, captions -> report (networks) -> figures -> page, live
"""

from dgvf_agents.atlas import domains as domains  # registers them
