"""Meta-gradients of any inner step and outer loss: against autograd through the whole chain, and finite differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from dgvf_agents.core.flat import map_tensors
from dgvf_agents.engine import InnerLoop, LossGradient, MetaGradient, meta_gradient
from tests.core.inner_loop_problem import Training, batches, initial_eta, loss, start, step, step_with_loss
from tests.core_oracles import central_difference

pytestmark = pytest.mark.usefixtures("double_precision")

L = 4


def summed_loss(eta: Any, horizon: str, objective: str, steps: int) -> Tensor:
    """The meta-loss as a plain function of η."""
    state, total = start(), torch.zeros(())
    for k, (batch, scored) in enumerate(zip(batches(steps), batches(steps, seed=2), strict=True)):
        if horizon == "myopic":
            state = Training(*tree_map(Tensor.detach, tuple(state)))
        state, _ = step(state, eta, batch)
        if objective == "sum" or k == steps - 1:
            total = total + loss(state, eta, scored)
    return total


def transcribed(horizon: str = "unrolled", objective: str = "sum", steps: int = L) -> Any:
    """The meta-gradient by autograd through the whole chain at once."""
    leaves, spec = tree_flatten(initial_eta())
    leaves = [leaf.requires_grad_() for leaf in leaves]
    gradients = torch.autograd.grad(
        summed_loss(tree_unflatten(leaves, spec), horizon, objective, steps), leaves, allow_unused=True
    )
    return tree_unflatten(
        [torch.zeros_like(v) if g is None else g for v, g in zip(leaves, gradients, strict=True)], spec
    )


def computed(steps: int = L, objective: Any = "sum", **options: Any) -> MetaGradient[Training, Any]:
    scored = batches(steps, seed=2)
    scored = scored if objective == "sum" else scored[-1:]
    return meta_gradient(step, loss, start(), initial_eta(), batches(steps), scored, objective=objective, **options)


def assert_equal(one: Any, other: Any, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("storage", ["graph", "recompute"])
@pytest.mark.parametrize("horizon", ["unrolled", "myopic"])
@pytest.mark.parametrize("objective", ["sum", "end"])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_equals_autograd_through_the_whole_chain(storage: str, horizon: str, objective: str, steps: int) -> None:
    result = computed(steps, objective, horizon=horizon, storage=storage)
    assert_equal(result.gradient, transcribed(horizon, objective, steps))
    assert result.losses.shape == (steps if objective == "sum" else 1,)
    assert int(result.state.count) == steps
    assert not any(value.requires_grad for value in tree_leaves((result.gradient, tuple(result.state), result.losses)))


def test_equals_finite_differences() -> None:
    leaves, spec = tree_flatten(initial_eta())
    eta = {str(i): leaf for i, leaf in enumerate(leaves)}

    def summed(moved: dict[str, Tensor]) -> Tensor:
        return summed_loss(tree_unflatten(list(moved.values()), spec), "unrolled", "sum", L)

    for name, gradient in zip(eta, tree_leaves(computed().gradient), strict=True):
        for entry, derivative in enumerate(gradient.flatten().tolist()):
            expected = central_difference(summed, eta, name, entry, 1e-6)
            assert derivative == pytest.approx(expected, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_step_with_loss_is_add_loss_then_step(storage: Any) -> None:
    apart, together = (InnerLoop(start(), initial_eta(), storage=storage) for _ in range(2))
    for k, batch in enumerate(batches(L)):
        expected = apart.add_loss(loss, batch) if k else loss(start(), initial_eta(), batch)
        auxiliary = apart.step(step, batch)
        found, value = together.step(step_with_loss, batch, with_loss=True)
        assert_equal((found, value, tuple(together.state)), (auxiliary, expected, tuple(apart.state)))
        assert not any(tensor.requires_grad for tensor in tree_leaves((found, value, tuple(together.state))))
    # the loss of s_0 depends on η directly: 0.1 Σ weights²
    direct = 0.2 * initial_eta()["weights"]
    one, other = apart.gradient(), together.gradient()
    assert_equal(other.pop("weights"), one.pop("weights") + direct)
    assert_equal(other, one)


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_losses_of_one_state_add_up(storage: Any) -> None:
    def gradient(number: int) -> Any:
        loop = InnerLoop(start(), initial_eta(), storage=storage)
        loop.step(step, batches(1)[0])
        for scored in batches(number, seed=2):
            loop.add_loss(loss, scored)
        return loop.gradient()["weights"]

    second = InnerLoop(start(), initial_eta(), storage=storage)
    second.step(step, batches(1)[0])
    second.add_loss(loss, batches(2, seed=2)[1])
    assert_equal(gradient(2), gradient(1) + second.gradient()["weights"])


@pytest.mark.parametrize("storage", ["graph", "recompute"])
@pytest.mark.parametrize(("exact", "derivative"), [(True, 3 * 0.9**2 * 2.0), (False, 0.9**2 * 2.0)])
def test_what_a_step_detaches_stays_out_of_the_gradient(storage: Any, exact: bool, derivative: float) -> None:
    """s_3 = η³ s_0. If steps detach their state, only the last factor counts."""

    def grown(state: Tensor, eta: Tensor) -> Tensor:
        return eta * (state if exact else state.detach())

    loop = InnerLoop(torch.tensor(2.0), torch.tensor(0.9), storage=storage)
    for _ in range(3):
        assert loop.step(grown) is None
    loop.add_loss(lambda state, eta: state)
    assert float(loop.gradient()) == pytest.approx(derivative, rel=1e-12)


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_a_loss_may_depend_on_eta_alone(storage: Any) -> None:
    loop = InnerLoop(start(), initial_eta(), storage=storage)
    loop.step(step, batches(1)[0])
    loop.add_loss(lambda state, eta: (eta["weights"] ** 3).sum())
    gradient = loop.gradient()
    assert_equal(gradient.pop("weights"), 3.0 * initial_eta()["weights"] ** 2)
    assert not any(value.any() for value in tree_leaves(gradient))


def test_the_state_and_eta_that_are_given_do_not_change() -> None:
    state, eta = start(), tree_map(lambda value: value.requires_grad_(), initial_eta())
    meta_gradient(step, loss, state, eta, batches(L), batches(L, seed=2))
    assert_equal((tuple(state), eta), (tuple(start()), initial_eta()), tolerance=0)
    assert all(value.grad is None for value in tree_leaves(eta))


@pytest.mark.parametrize(("storage", "calls"), [("graph", L), ("recompute", 2 * L)])
def test_graphs_are_kept_or_functions_called_again(storage: str, calls: int) -> None:
    counts = Counter[str]()

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            counts[function.__name__] += 1
            return function(*arguments)

        return call

    arguments = (start(), initial_eta(), batches(L), batches(L, seed=2))
    result = meta_gradient(counted(step), counted(loss), *arguments, storage=storage)  # type: ignore[arg-type]
    assert counts == {"step": calls, "loss": calls}
    assert_equal(result.gradient, transcribed())


def test_the_gradient_passes_through_the_last_steps_that_were_recorded() -> None:
    eta, given = initial_eta(), batches(5)
    states = [start()]
    for batch in given:
        states.append(step(states[-1], eta, batch)[0])
    whole = InnerLoop(states[3], eta)
    losses = []
    for batch in given[3:]:
        whole.step(step, batch)
        losses.append(whole.add_loss(loss, given[0]))
    recorded = InnerLoop(start(), eta, storage="recompute", length=2)
    for batch, after in zip(given, states[1:], strict=True):
        recorded.record(step, batch, after=after)
    assert recorded.steps == 2
    assert_equal([recorded.add_loss(loss, given[0], after=k) for k in range(2)], losses)
    assert_equal(recorded.gradient(), whole.gradient())


class OwnDerivatives:
    """s′ = η s and loss s²/2, with derivatives that are twice the true ones, to be told apart."""

    def __call__(self, state: Tensor, eta: Tensor) -> Tensor:
        return eta * state

    def vjp(self, state: Tensor, eta: Tensor) -> tuple[Tensor, Any]:
        def pull_back(cotangents: list[Tensor], addends: list[Tensor | None]) -> list[Tensor | None]:
            products = (2.0 * eta * cotangents[0], 2.0 * state * cotangents[0])
            return [None if addend is None else addend + p for addend, p in zip(addends, products, strict=True)]

        return eta * state, pull_back


class OwnGradient:
    def __call__(self, state: Tensor, eta: Tensor) -> Tensor:
        return state**2 / 2.0

    def gradient(self, state: Tensor, eta: Tensor) -> LossGradient:
        return LossGradient(state**2 / 2.0, [10.0 * state], [None])


@pytest.mark.parametrize("storage", ["graph", "recompute"])
def test_functions_may_differentiate_themselves(storage: Any) -> None:
    loop = InnerLoop(torch.tensor(3.0), torch.tensor(0.5), storage=storage)
    loop.step(OwnDerivatives())
    assert float(loop.add_loss(OwnGradient())) == 1.5**2 / 2.0
    assert float(loop.gradient()) == 10.0 * 1.5 * 2.0 * 3.0


def test_history_and_replaced_states() -> None:
    loop = InnerLoop(start(), initial_eta(), storage="recompute")
    given = batches(2)
    loop.step(step, given[0])
    elsewhere = tree_map(lambda value: value * 2, loop.state)
    loop.set_state(elsewhere)
    loop.step(step, given[1])
    first, inputs = loop.history
    assert_equal(tuple(first), tuple(start()), tolerance=0)
    assert [batch for (batch,) in inputs] == given
    assert loop.steps == 2
    assert_equal(tuple(loop.state), tuple(step(elsewhere, initial_eta(), given[1])[0]))


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["graph", "recompute"])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda state, eta: state.theta["weight"], r"scalar tensor, got a tensor of shape \(3,\)"),
        (lambda state, eta: 3.0, "scalar tensor, got a float"),
    ],
)
def test_losses_that_are_refused(storage: Any, function: Any, message: str) -> None:
    loop = InnerLoop(start(), initial_eta(), storage=storage)
    loop.step(step, batches(1)[0])
    with pytest.raises(ValueError, match=message):
        loop.add_loss(function)
    loop = InnerLoop(start(), initial_eta())
    loop.step(step, batches(1)[0])
    with pytest.raises(ValueError, match="detached from both"):
        loop.add_loss(lambda state, eta: state.theta["bias"].detach())


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda state, eta: state.theta, "like its argument"),
        (lambda state, eta: state._replace(momentum={}), "like its argument"),
        (lambda state, eta: tuple(state), "got a tuple of 3"),
        (lambda state, eta: map_tensors(torch.detach, state), "detached"),
        (lambda state, eta: map_tensors(Tensor.float, step(state, eta, batches(1)[0])), "like its argument"),
    ],
)
@pytest.mark.parametrize("steps", [0, 1])
def test_steps_that_return_something_else(function: Any, message: str, steps: int) -> None:
    loop = InnerLoop(start(), initial_eta())
    for batch in batches(steps):
        loop.step(step, batch)
    with pytest.raises(ValueError, match=message):
        loop.step(function)


def test_invalid_arguments() -> None:
    short = (step, loss, start(), initial_eta(), batches(2), batches(1))
    refused: dict[str, Callable[[], Any]] = {
        "horizon must": lambda: InnerLoop(start(), {}, horizon="far"),  # type: ignore[arg-type]
        "storage must": lambda: InnerLoop(start(), {}, storage="disk"),  # type: ignore[arg-type]
        "objective must": lambda: computed(objective="mean"),
        "length must be >= 1, got 0": lambda: InnerLoop(start(), {}, length=0),
        "state must": lambda: InnerLoop(tuple(start()), {}),
        "got a float": lambda: InnerLoop(start(), {"rate": 0.1}),
        "^batches must": lambda: meta_gradient(step, loss, start(), {}, [], []),
        "loss_batches must": lambda: meta_gradient(*short),
    }
    for message, call in refused.items():
        with pytest.raises((ValueError, TypeError), match=message):
            call()


def test_calls_out_of_order() -> None:
    loop = InnerLoop(start(), initial_eta())
    with pytest.raises(RuntimeError, match="before any step"):
        loop.add_loss(loss, batches(1)[0])
    with pytest.raises(RuntimeError, match="needs the storage 'recompute'"):
        loop.record(step, batches(1)[0], after=start())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="without any loss"):
            loop.gradient()
        loop.step(step, batches(1)[0])
    myopic = InnerLoop(start(), initial_eta(), horizon="myopic")
    with pytest.raises(RuntimeError, match="needs the horizon 'unrolled'"):
        myopic.step(step_with_loss, batches(1)[0], with_loss=True)
