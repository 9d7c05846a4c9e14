"""The question atlas: what the questions of a trained agent ask, at every state of its world or along a game.

domain (where to ask) -> probe (networks) -> metrics, reliance, captions -> report -> figures, frames -> page, live
"""

from dgvf_agents.atlas import rooms as rooms  # registers its domain
from dgvf_agents.atlas import square as square  # registers its domain
