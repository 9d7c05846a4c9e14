"""All experiments by name."""

from __future__ import annotations

from dgvf_agents.experiments.atari_laptop import AtariLaptop
from dgvf_agents.experiments.atari_meta_objective import AtariMetaObjective
from dgvf_agents.experiments.atari_representation import AtariRepresentation
from dgvf_agents.experiments.convention import Convention
from dgvf_agents.experiments.figure import Figure
from dgvf_agents.experiments.gridworlds import Gridworlds
from dgvf_agents.experiments.joint import Joint
from dgvf_agents.experiments.learning_rate import LearningRate
from dgvf_agents.experiments.low_rate import LowRate
from dgvf_agents.experiments.meta_objective import MetaObjective
from dgvf_agents.experiments.own_tasks import OwnTasks
from dgvf_agents.experiments.questions import Questions
from dgvf_agents.experiments.search import Search
from dgvf_agents.experiments.unroll_length import UnrollLength

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Gridworlds(),
        Questions(),
        UnrollLength(),
        MetaObjective(),
        Joint(),
        Search(),
        LearningRate(),
        LowRate(),
        Convention(),
        OwnTasks(),
        AtariRepresentation(),
        AtariMetaObjective(),
        AtariLaptop(),
    )
}
