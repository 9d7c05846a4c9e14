"""Meta-gradients for your own inner step and outer loss: the public path of the parts of `dgvf_agents.core`."""

from dgvf_agents.core.inner_loop import InnerLoop, LossGradient, MetaGradient, meta_gradient
from dgvf_agents.core.meta_optimizer import MetaOptimizer
from dgvf_agents.core.optimizers import SGD, Adam, Optimizer, OptimizerState, RMSProp

__all__ = [
    "SGD",
    "Adam",
    "InnerLoop",
    "LossGradient",
    "MetaGradient",
    "MetaOptimizer",
    "Optimizer",
    "OptimizerState",
    "RMSProp",
    "meta_gradient",
]
