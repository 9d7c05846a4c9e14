"""What the processes of a sweep fork from: all modules, and which code these are.

Files may change while a sweep runs. Its processes still run, and record, the code that it began with.
"""

import dgvf_agents.experiments.runs  # noqa: F401
from dgvf_agents.execution.task import surroundings
from dgvf_agents.train.folder import code_version

code_version()
surroundings()
