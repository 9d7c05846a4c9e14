"""An inner loop and its meta-gradient: the backward pass from losses of its states, through its steps, to η.

    s_k = step(s_{k-1}, η, inputs)               k = 1 … L
    meta-gradient = ∇_η Σ_k loss(s_k, η, inputs)

A state s is whatever a step changes: parameters, the statistics of their optimizer. States and meta-parameters η are
trees: tensors in dicts, lists and named tuples. Steps and losses are pure functions of them. Inputs are batches,
learning rates and whatever else a function needs; nothing is differentiated in them.

The gradient differentiates the functions as they are written. A step that detaches what depends on its state, such as a
bootstrap, gives the meta-gradient of a pseudo-loss with stop-gradients; one that does not gives the procedure's.

Algorithm 1's functions are in `dgvf_agents.core.inner_update`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Generic, NamedTuple, TypeVar, final

import torch
from jaxtyping import Float
from torch import Tensor

from dgvf_agents.core.argument_checks import check_choice, check_counts
from dgvf_agents.core.flat import builder, check_layout, flatten, map_tensors, template
from dgvf_agents.core.vjp import PullBack, is_plain_tuple, vjp
from dgvf_agents.options import Horizon, Objective, Storage

State = TypeVar("State")
Eta = TypeVar("Eta")


class LossGradient(NamedTuple):
    """A loss and its gradient. A loss with a method `gradient(state, η, *inputs)` computes both itself."""

    value: Tensor
    """The loss, detached."""
    in_state: list[Tensor | None]
    """One for each tensor of the state, in their order; `None`: zero."""
    in_eta: list[Tensor | None]
    """One for each tensor of η."""


@dataclass
class _Step:
    """A step of an inner loop, recorded for the backward pass."""

    before: Any
    """The state before it."""
    inputs: tuple[Any, ...]
    function: Callable[..., Any]
    pull_back: PullBack | None
    """Under `"graph"` storage, else `None`."""
    weight: Tensor | None = None
    """1, the weight of the loss that the function returns; `None` if it returns none."""
    gradients: list[LossGradient] = field(default_factory=list)
    """Gradients of losses of the state after it."""
    losses: list[tuple[Callable[..., Any], tuple[Any, ...]]] = field(default_factory=list)
    """Other losses of it, whose gradients are still to be computed, and their inputs."""


@final
class InnerLoop(Generic[State, Eta]):
    """A chain of steps from one state to the next, and losses of these states; then the gradient of their sum in η.

    `"graph"` storage keeps the graph of every step. `"recompute"` storage keeps only the states and the inputs, and
    runs each step again in the backward pass. The gradient is the same. Under `"recompute"` storage, steps run without
    a graph at first: they have to differentiate with `torch.func.grad`, not with `torch.autograd.grad`.

    A function that has a method `vjp` is differentiated by that instead of autograd: `vjp(state, η, *inputs)` returns
    the result and its `PullBack`.
    """

    def __init__(
        self,
        state: State,
        eta: Eta,
        *,
        horizon: Horizon = "unrolled",
        storage: Storage = "graph",
        length: int | None = None,
    ) -> None:
        """
        Args:
            state: s_0.
            eta: η.
            horizon: `"unrolled"`: the gradient passes through all steps; `"myopic"`: a loss counts through the direct
                effect of η on the step before it.
            storage: `"graph"` or `"recompute"`.
            length: number of steps, the last ones, that the gradient passes through; `None`: all.

        Raises:
            ValueError: `horizon` or `storage` is not one of these, `length` < 1, or the state is a tuple without names.
            TypeError: the state or η has something else than tensors in it.
        """
        check_choice("horizon", horizon, Horizon)
        check_choice("storage", storage, Storage)
        check_counts(**({} if length is None else {"length": length}))
        if is_plain_tuple(state):
            raise ValueError("state must be a tensor, dict, list or named tuple, got a tuple without names")
        self._unrolled, self._keep_graph = horizon == "unrolled", storage == "graph"
        self._state: State = map_tensors(Tensor.detach, state)
        self._eta: Eta = map_tensors(Tensor.detach, eta)
        self._steps: deque[_Step] = deque(maxlen=length)
        self._weight: Tensor | None = None  # cotangent of the losses that are computed with a step: 1

    @property
    def state(self) -> State:
        """s_k, the state after the steps so far, detached."""
        return self._state

    @property
    def steps(self) -> int:
        """k, the number of steps so far, at most `length`."""
        return len(self._steps)

    @property
    def has_loss(self) -> bool:
        """Whether there is a loss that depends on η through a step."""
        scored = any(step.losses or step.gradients for step in self._steps)
        return scored or any(step.weight is not None for step in islice(self._steps, 1, None))

    @property
    def history(self) -> tuple[State, list[tuple[Any, ...]]]:
        """The state before the first step that is kept, and the inputs of every step."""
        start = self._steps[0].before if self._steps else self._state
        return start, [step.inputs for step in self._steps]

    def set_state(self, state: State) -> None:
        """Replace the state; it must equal the recorded one up to rounding."""
        self._state = map_tensors(Tensor.detach, state)

    def step(self, function: Callable[..., Any], *inputs: Any, with_loss: bool = False) -> Any:
        """Take a step, and add a loss of the state before it if the function computes both.

        The loss of s_0 depends on η at most directly, not through a step.

        Args:
            function: `(state, η, *inputs)` to the new state, or to a pair of the new state and an auxiliary result. For
                `with_loss`, to `((new state, loss of the state before), auxiliary result)`.
            inputs: further arguments of the function.
            with_loss: whether the function returns a loss.

        Returns:
            the auxiliary result, detached, `None` if there is none; for `with_loss`, a pair of that and the loss.

        Raises:
            ValueError: the function's result is a tuple of another length, or the state's tensors have other names,
                shapes or data types than before.
            RuntimeError: `with_loss`, and the horizon is `"myopic"`, which needs the gradients of step and loss by
                themselves.
        """
        if with_loss and not self._unrolled:
            raise RuntimeError("with_loss=True needs the horizon 'unrolled': call add_loss() and step() instead")
        arguments = (self._state, self._eta, *inputs)
        if self._keep_graph:
            result, pull_back = vjp(function, arguments, 2)
        else:
            with torch.no_grad():
                result, pull_back = function(*arguments), None
        step = _Step(self._state, inputs, function, pull_back)
        after, auxiliary = _state_and_auxiliary(result)
        if with_loss:
            after, loss = _state_and_auxiliary(after)
            step.weight = self._weight = torch.ones_like(loss) if self._weight is None else self._weight
        self._append(step, after)
        return (auxiliary, loss) if with_loss else auxiliary

    def record(self, function: Callable[..., Any], *inputs: Any, after: State) -> None:
        """Take a step whose result is known; only under `"recompute"` storage, which repeats it in the backward pass.

        Args:
            function: see `step`.
            inputs: see `step`.
            after: the new state, as the function computes it.

        Raises:
            ValueError: the state's tensors have other names, shapes or data types than before.
            RuntimeError: the storage is `"graph"`.
        """
        if self._keep_graph:
            raise RuntimeError("record() needs the storage 'recompute': call step() instead")
        self._append(_Step(self._state, inputs, function, None), map_tensors(Tensor.detach, after))

    def _append(self, step: _Step, after: State) -> None:
        check_layout("a step must return a state like its argument", after, step.before)
        self._steps.append(step)
        self._state = after

    def add_loss(self, function: Callable[..., Any], *inputs: Any, after: int = -1) -> Tensor:
        """Add a loss of a state.

        Args:
            function: `(state, η, *inputs)` to a scalar.
            inputs: further arguments of the function.
            after: index of the step that the state follows; by default, the state is the current one.

        Returns:
            the loss, detached.

        Raises:
            RuntimeError: there was no step yet.
            ValueError: the loss is not a scalar, or depends neither on the state nor on η.
        """
        if not self._steps:
            raise RuntimeError("add_loss() was called before any step: call step() first")
        step, last = self._steps[after], after in (-1, self.steps - 1)
        state = self._state if last else self._steps[after + 1].before
        if self._keep_graph or hasattr(function, "gradient"):
            step.gradients.append(_loss_gradient(function, state, self._eta, inputs))
            return step.gradients[-1].value
        with torch.no_grad():
            value = _checked_loss(function(state, self._eta, *inputs))
        step.losses.append((function, inputs))
        return value

    def gradient(self) -> Eta:
        """The meta-gradient, a tree like η. It consumes the recorded steps; `state` stays.

        Raises:
            RuntimeError: there is no loss.
        """
        if not self.has_loss:
            raise RuntimeError("gradient() was called without any loss: call step() and add_loss() first")
        total: list[Any] = [torch.zeros_like(value) for value in flatten(self._eta)]
        zeros = [torch.zeros_like(value) for value in flatten(self._state)]
        adjoint, total = self._with_losses(self._steps[-1], self._state, zeros, total)
        while self._steps:
            step = self._steps.pop()  # frees its graph
            direct = zeros  # gradient of the losses of s_{k-1} there
            if self._steps:
                direct, total = self._with_losses(self._steps[-1], step.before, zeros, total)
            if adjoint is zeros and step.weight is None:  # no loss so far
                adjoint = direct
                continue
            passed: list[Any] = direct
            if not self._unrolled:
                passed = [None] * len(direct)
            elif direct is zeros:
                passed = [0.0] * len(direct)
            cotangents = adjoint if step.weight is None else [*adjoint, step.weight]
            products: list[Any] = self._pull_back(step)(cotangents, [*passed, *total])
            adjoint = products[: len(direct)] if self._unrolled else direct
            total = products[len(direct) :]
        eta: Eta = builder(template(self._eta))(total)
        return eta

    def _pull_back(self, step: _Step) -> PullBack:
        """The pull-back of a step, which `"recompute"` storage repeats for it."""
        return step.pull_back or vjp(step.function, (step.before, self._eta, *step.inputs), 2)[1]

    def _with_losses(
        self, step: _Step, after: State, zeros: list[Tensor], total: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The gradient of the losses after a step in the state there, and `total` with their gradient in η.

        Args:
            step: the step.
            after: the state after it.
            zeros: like the tensors of the state; returned if there is no loss.
            total: like the tensors of η.
        """
        direct = zeros
        computed = (_loss_gradient(function, after, self._eta, inputs) for function, inputs in step.losses)
        for gradient in chain(step.gradients, computed):
            direct = _sums(direct, gradient.in_state) if direct is not zeros else _or_zeros(gradient.in_state, zeros)
            total = _sums(total, gradient.in_eta)
        return direct, total


def _loss_gradient(function: Callable[..., Any], state: Any, eta: Any, inputs: tuple[Any, ...]) -> LossGradient:
    own = getattr(function, "gradient", None)
    if own is not None:
        result: LossGradient = own(state, eta, *inputs)
        return result
    leaves = [value.detach().requires_grad_(value.is_floating_point()) for value in flatten((state, eta))]
    with torch.enable_grad():
        value = _checked_loss(function(*builder(template((state, eta)))(leaves), *inputs))
    if not value.requires_grad:
        raise ValueError("a loss must depend on the state or on eta, got one that is detached from both")
    floating = [leaf for leaf in leaves if leaf.requires_grad]
    gradients = iter(torch.autograd.grad(value, floating, allow_unused=True))
    of_leaves = [next(gradients) if leaf.requires_grad else None for leaf in leaves]
    size = len(flatten(state))
    return LossGradient(value.detach(), of_leaves[:size], of_leaves[size:])


def _checked_loss(value: Any) -> Tensor:
    if not isinstance(value, Tensor) or value.dim() != 0:
        got = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise ValueError(f"a loss must be a scalar tensor, got {got}")
    return value


def _state_and_auxiliary(result: Any) -> tuple[Any, Any]:
    if not is_plain_tuple(result):
        return result, None
    if len(result) != 2:
        raise ValueError(
            f"a step must return a state, or a state and an auxiliary result, got a tuple of {len(result)}"
        )
    return result[0], result[1]


def _or_zeros(gradients: list[Tensor | None], zeros: list[Tensor]) -> list[Tensor]:
    return [zero if gradient is None else gradient for gradient, zero in zip(gradients, zeros, strict=True)]


def _sums(addends: list[Tensor], gradients: list[Tensor | None]) -> list[Tensor]:
    pairs = zip(addends, gradients, strict=True)
    return [addend if gradient is None else addend + gradient for addend, gradient in pairs]


@final
@dataclass(frozen=True)
class MetaGradient(Generic[State, Eta]):
    """The result of an inner loop: its meta-gradient, last state and losses."""

    gradient: Eta
    """∇_η of the sum of the losses, a tree like η."""
    state: State
    """s_L, detached."""
    losses: Float[Tensor, " n"]
    """`[n]`: the losses, detached; n is L for the objective `"sum"`, 1 for `"end"`."""


def meta_gradient(
    step: Callable[..., Any],
    loss: Callable[..., Any],
    state: State,
    eta: Eta,
    batches: Sequence[Any],
    loss_batches: Sequence[Any],
    *,
    objective: Objective = "sum",
    horizon: Horizon = "unrolled",
    storage: Storage = "graph",
) -> MetaGradient[State, Eta]:
    """The meta-gradient of an inner loop over given batches.

    Args:
        step: `(state, η, batch)` to the new state, or to a pair of the new state and an auxiliary result.
        loss: `(state, η, batch)` to a scalar.
        state: s_0.
        eta: η.
        batches: the L ≥ 1 batches of the steps.
        loss_batches: the batches of the losses: of s_1 … s_L for the objective `"sum"`, of s_L for `"end"`.
        objective: whether the meta-loss is the sum of the losses of all states, or the loss of the last one.
        horizon: see `InnerLoop`.
        storage: see `InnerLoop`.

    Raises:
        ValueError: an argument is out of its range, or numbers of batches do not fit; what `InnerLoop` raises.
    """
    check_choice("objective", objective, Objective)
    if not batches:
        raise ValueError("batches must have an entry for each step, got none")
    needed = len(batches) if objective == "sum" else 1
    if len(loss_batches) != needed:
        raise ValueError(
            f"loss_batches must have {needed} entries for objective {objective!r}, got {len(loss_batches)}"
        )
    loop = InnerLoop(state, eta, horizon=horizon, storage=storage)
    losses: list[Tensor] = []
    unscored = len(batches) - needed
    for k, batch in enumerate(batches):
        loop.step(step, batch)
        if k >= unscored:
            losses.append(loop.add_loss(loss, loss_batches[k - unscored]))
    return MetaGradient(loop.gradient(), loop.state, torch.stack(losses))
