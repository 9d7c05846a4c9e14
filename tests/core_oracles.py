"""A slow, literal transcription of the algorithm of Veeriah et al. (2019).

It has loops instead of recursions, matrix products instead of modules, and autograd with `create_graph=True` instead of
`torch.func` and a chain rule by hand. It uses nothing of `dgvf_agents` but its records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from dgvf_agents.core.types import Params, Rollout

AnswerLoss = Callable[[Tensor, Tensor, Params, Rollout], Tensor]
"""L^ans of answers y(x_t) and next answers y(x_{t+1}), both `[T, B, D]`, of η and of a rollout."""


def central_difference(function: Callable[[Params], Any], params: Params, name: str, entry: int, step: float) -> float:
    """∂f/∂p by (f(p + h) - f(p - h)) / 2h, with p an entry of one of the parameters and f a number."""
    sides = []
    for sign in (1, -1):
        moved = {key: value.clone() for key, value in params.items()}
        moved[name].view(-1)[entry] += sign * step
        sides.append(float(function(moved)))
    return (sides[0] - sides[1]) / (2 * step)


def of_every_step(function: Callable[[int, int], Tensor], like: Tensor) -> Tensor:
    """The values `[T, B, ...]` of a function of t and b, for the steps of a tensor `[T, B, ...]`."""
    steps, num_envs = like.shape[:2]
    return torch.stack([torch.stack([function(t, b) for b in range(num_envs)]) for t in range(steps)])


# --- returns ----------------------------------------------------------------------------------------------------------


def slow_returns(cumulants: Tensor, discounts: Tensor, bootstraps: Tensor, segment_end: Tensor) -> Tensor:
    """G_t = c_{t+1} + γ_{t+1} c_{t+2} + … + γ_{t+1} … γ_{W+1} v_{W+1}, with W ≥ t the end of the segment."""
    discounts = discounts.expand_as(cumulants)
    return slow_lambda_returns(cumulants, discounts, bootstraps, bootstraps, segment_end, 1.0)


def slow_lambda_returns(
    rewards: Tensor, discounts: Tensor, values: Tensor, bootstraps: Tensor, segment_end: Tensor, gae_lambda: float
) -> Tensor:
    """(1-λ) Σ_n λ^(n-1) G^(n), the rest of the weight on the longest."""

    def mixture(t: int, b: int) -> Tensor:
        mixed, weight, gained, discount = torch.zeros(()), 1.0, torch.zeros(()), torch.ones(())
        for w in range(t, len(rewards)):
            gained = gained + discount * rewards[w, b]
            discount = discount * discounts[w, b]
            if segment_end[w, b]:
                break
            mixed = mixed + (1 - gae_lambda) * weight * (gained + discount * values[w + 1, b])
            weight *= gae_lambda
        return mixed + weight * (gained + discount * bootstraps[w, b])

    return of_every_step(mixture, segment_end)


def alive(rollout: Rollout) -> Tensor:
    """0 where the episode terminated, else 1."""
    return torch.tensor([[0.0 if end else 1.0 for end in row] for row in rollout.terminated.tolist()])


def slow_window(segment_end: Tensor, t: int, b: int, length: int) -> list[int]:
    """The steps of the window o_{t+1:t+j}; the last one of the segment is repeated."""
    steps = []
    for _ in range(length):
        steps.append(t)
        t = t if segment_end[t, b] else t + 1
    return steps


def slow_vtrace(
    ratios: Tensor,
    rewards: Tensor,
    discounts: Tensor,
    values: Tensor,
    next_values: Tensor,
    segment_end: Tensor,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    lambda_: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """V-trace targets v_s = V(x_s) + Σ_t γ^{t-s} (Π_{i=s}^{t-1} c_i) δ_t V, t up to the end of the segment.

    With δ_t V = ρ_t (r_t + γ V(x_{t+1}) - V(x_t)); and advantages ρ_s (r_s + γ v_{s+1} - V(x_s)). Ratios at a bound are
    the bound, a constant; λ multiplies every c.
    """
    rho, c = (
        torch.where(ratios < bar * (1 - 1e-4), ratios, ratios.detach().clamp(max=bar)) for bar in (rho_bar, c_bar)
    )

    def target(s: int, b: int) -> Tensor:
        total, weight = values[s, b], torch.ones(())
        for t in range(s, len(rewards)):
            following = next_values[t, b] if segment_end[t, b] else values[t + 1, b]
            total = total + weight * rho[t, b] * (rewards[t, b] + discounts[t, b] * following - values[t, b])
            weight = weight * discounts[t, b] * lambda_ * c[t, b]
            if segment_end[t, b]:
                break
        return total

    targets = of_every_step(target, rewards)

    def advantage(s: int, b: int) -> Tensor:
        following = next_values[s, b] if segment_end[s, b] else targets[s + 1, b]
        return rho[s, b] * (rewards[s, b] + discounts[s, b] * following - values[s, b])

    return targets, of_every_step(advantage, rewards)


# --- networks: layer after layer, by name -----------------------------------------------------------------------------


def encode(params: Params, observations: Tensor) -> Tensor:
    """x = ReLU(W … ReLU(W o + b) … + b)."""
    x, layer = observations.flatten(2), 0
    while (name := f"encoder.layers.{layer}") + ".weight" in params:
        x, layer = torch.relu(head(params, name, x)), layer + 2
    return x


def head(params: Params, name: str, x: Tensor) -> Tensor:
    """W x + b."""
    return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]


def mlp(params: Params, name: str, x: Tensor) -> Tensor:
    """W₃ ReLU(W₂ ReLU(W₁ x + b₁) + b₂) + b₃, of a shared question network."""
    for layer in (0, 1):
        x = torch.relu(head(params, f"{name}.{layer}", x))
    return head(params, f"{name}.2", x)


# --- answer losses ----------------------------------------------------------------------------------------------------


def squared_error(answers: Tensor, targets: Tensor) -> Tensor:
    """Σ_i (target_i - y_i)², averaged over time and batch."""
    return ((targets - answers) ** 2).sum() / (answers.shape[0] * answers.shape[1])


def gvf_loss(discount: float | None = 0.9, window: int = 1) -> AnswerLoss:
    """½ (G^{y_i}_t - y_i(x_t))², cumulants u = arctan(·), discounts γ = sigmoid(·) or hand-set."""

    def loss(answers: Tensor, next_answers: Tensor, eta: Params, rollout: Rollout) -> Tensor:
        def joined(t: int, b: int) -> Tensor:
            return torch.cat([rollout.next_observations[w, b] for w in slow_window(rollout.segment_end, t, b, window)])

        windows = of_every_step(joined, rollout.rewards)
        shared = "cumulants.weight" not in eta
        x, outputs = (windows, mlp) if shared else (encode(eta, windows), head)
        u = torch.arctan(outputs(eta, "cumulants", x))
        gamma = torch.full_like(u, discount) if discount is not None else torch.sigmoid(outputs(eta, "discounts", x))
        targets = slow_returns(u, gamma * alive(rollout)[..., None], next_answers, rollout.segment_end)
        return 0.5 * squared_error(answers, targets)

    return loss


def reward_prediction_loss(answers: Tensor, next_answers: Tensor, eta: Params, rollout: Rollout) -> Tensor:
    """(y(x_t) - R_{t+1})²."""
    return squared_error(answers, rollout.rewards[..., None])


def slow_pixel_changes(rollout: Rollout, grid: int, scale: float, border: int = 0) -> Tensor:
    """c_i: the mean of |o_{t+1} - o_t| over channels and over the pixels of cell i, cells counted row by row."""
    steps, num_envs, channels, height, width = rollout.observations.shape
    height, width = height - 2 * border, width - 2 * border
    changes = torch.zeros(steps, num_envs, grid * grid)
    for row, column in product(range(height), range(width)):
        cell = (row * grid // height) * grid + column * grid // width
        for channel in range(channels):
            before = rollout.observations[:, :, channel, row + border, column + border]
            after = rollout.next_observations[:, :, channel, row + border, column + border]
            changes[:, :, cell] += (after - before).abs() * scale
    return changes * grid * grid / (channels * height * width)


def pixel_control_loss(actions: int, grid: int, discount: float, scale: float = 1.0) -> AnswerLoss:
    """Σ_i ½ (G_{c_i} + γ^n max_a′ q_i(s′, a′) - q_i(s, a))²; answer i·A + a is q_i(·, a)."""

    def loss(answers: Tensor, next_answers: Tensor, eta: Params, rollout: Rollout) -> Tensor:
        c = slow_pixel_changes(rollout, grid, scale)
        cells = range(grid * grid)
        best = torch.stack([next_answers[..., i * actions : (i + 1) * actions].max(-1).values for i in cells], -1)
        targets = slow_returns(c, discount * alive(rollout)[..., None], best, rollout.segment_end)

        def taken(t: int, b: int) -> Tensor:
            return torch.stack([answers[t, b, i * actions + int(rollout.actions[t, b])] for i in cells])

        return 0.5 * squared_error(of_every_step(taken, rollout.rewards), targets)

    return loss


# --- optimizers -------------------------------------------------------------------------------------------------------


class Statistics(NamedTuple):
    """An optimizer's statistics: number of steps, first and second moments."""

    steps: int
    first: Params
    second: Params


class Rule(NamedTuple):
    """The inner optimizer's kind, `"sgd"`, `"rmsprop"` or `"adam"`, and its hyperparameters."""

    kind: str
    learning_rate: float
    epsilon: float = 1e-2
    decay: float = 0.6
    beta1: float = 0.8
    beta2: float = 0.7
    outside: bool = True


def root(s: Tensor) -> Tensor:
    """√s, whose derivative at 0 is taken as 0."""
    return torch.where(s == 0.0, s, torch.sqrt(torch.where(s == 0.0, 1.0, s)))


def optimizer_step(rule: Rule, theta: Params, g: Params, old: Statistics) -> tuple[Params, Statistics]:
    """One step of α′."""
    if rule.kind == "sgd":
        return {k: theta[k] - rule.learning_rate * g[k] for k in theta}, old
    if rule.kind == "rmsprop":
        # s ← ρ s + (1 - ρ) g²,   θ ← θ - α′ g / √(s + ε), or g / (√s + √ε)
        s = {k: rule.decay * old.second[k] + (1 - rule.decay) * g[k] ** 2 for k in theta}
        inside, outside = (0.0, rule.epsilon**0.5) if rule.outside else (rule.epsilon, 0.0)
        new = {k: theta[k] - rule.learning_rate * g[k] / (root(s[k] + inside) + outside) for k in theta}
        return new, Statistics(old.steps + 1, old.first, s)
    # m ← β₁ m + (1 - β₁) g,   v ← β₂ v + (1 - β₂) g²,   θ ← θ - α′ (m / (1 - β₁ⁿ)) / (√(v / (1 - β₂ⁿ)) + ε)
    n = old.steps + 1
    m = {k: rule.beta1 * old.first[k] + (1 - rule.beta1) * g[k] for k in theta}
    v = {k: rule.beta2 * old.second[k] + (1 - rule.beta2) * g[k] ** 2 for k in theta}
    new = {}
    for k in theta:
        m_hat, v_hat = m[k] / (1 - rule.beta1**n), v[k] / (1 - rule.beta2**n)
        new[k] = theta[k] - rule.learning_rate * m_hat / (root(v_hat) + rule.epsilon)
    return new, Statistics(n, m, v)


# --- Algorithm 1 ------------------------------------------------------------------------------------------------------


class StopGradientInputs(NamedTuple):
    """Inputs that the gradient of a pseudo-loss treats as constants, each a function of θ."""

    features: Tensor
    """x_t."""
    values: Tensor
    """v(x_t), in the advantages."""
    next_values: Tensor
    """v(x_{t+1}), which returns bootstrap from."""
    next_answers: Tensor
    """y(x_{t+1}), which the targets of answers bootstrap from."""
    weight: Tensor | None = None
    """w of L^ans; `None`: the auxiliary coefficient."""
    next_features: Tensor | None = None
    """x_{t+1}, the inputs of a shared question network."""
    ratios: Tensor | None = None
    """π(a_t|x_t) / μ(a_t|x_t), of off-policy targets."""


@dataclass(frozen=True)
class Algorithm:
    """Algorithm 1 for given experience: batches 1 … L + 1."""

    answer_loss: AnswerLoss
    rule: Rule
    convention: Literal["exact", "surrogate"] = "exact"
    encoder_mode: Literal["auxiliary", "joint"] = "auxiliary"
    horizon: Literal["unrolled", "myopic"] = "unrolled"
    max_gradient_norm: float | None = None
    discount: float = 0.95
    value_weight: float = 0.6
    entropy_weight: float = 0.05
    auxiliary_coefficient: float = 0.7
    auxiliary_weighting: Literal["fixed", "gradient-norm"] = "fixed"
    shared_questions: bool = False
    head_rate: float = 1.0
    gae_lambda: float = 1.0
    normalize_advantage: bool = False
    exploring: bool = False
    """Whether the network is an `ExploringNetwork` of `tests/core/metagradient_problem.py`."""

    def coefficient(self, rollout: Rollout) -> Tensor | float:
        """C of a batch."""
        return self.auxiliary_coefficient if rollout.auxiliary_coefficient is None else rollout.auxiliary_coefficient

    def stop_gradient_inputs(self, theta: Params, rollout: Rollout, eta: Params | None = None) -> StopGradientInputs:
        """The stop-gradient inputs at θ; without η for L^RL alone."""
        x, following = encode(theta, rollout.observations), encode(theta, rollout.next_observations)
        if self.exploring:
            following = -encode(theta, rollout.next_observations + rollout.statistics["encoder.shift"])
        values, next_values = head(theta, "value", x)[..., 0], head(theta, "value", following)[..., 0]
        stopped = StopGradientInputs(x, values, next_values, head(theta, "answers", following))
        stopped = stopped._replace(ratios=self.ratios(theta, x, rollout), next_features=following)
        if eta is None or self.auxiliary_weighting == "fixed":
            return stopped
        return stopped._replace(weight=self.weight(theta, stopped, eta, rollout))

    def asked(self, stopped: StopGradientInputs, rollout: Rollout) -> Rollout:
        """What questions are asked of: observations, or the agent's features of them."""
        if not self.shared_questions:
            return rollout
        assert stopped.next_features is not None
        return rollout._replace(next_observations=stopped.next_features)

    def feature_gradients(
        self, theta: Params, stopped: StopGradientInputs, eta: Params, rollout: Rollout
    ) -> list[Tensor]:
        """∂L^RL/∂x and ∂L^ans/∂x at x = x_t(θ)."""
        x = stopped.features + torch.zeros_like(stopped.features, requires_grad=True)
        main = self.rl_loss(theta, x, stopped, rollout)
        auxiliary = self.answer_loss(head(theta, "answers", x), stopped.next_answers, eta, self.asked(stopped, rollout))
        return [torch.autograd.grad(loss, x, create_graph=True)[0] for loss in (main, auxiliary)]

    def weight(self, theta: Params, stopped: StopGradientInputs, eta: Params, rollout: Rollout) -> Tensor:
        """w = c ‖∂L^RL/∂x‖ / √(‖∂L^ans/∂x‖² + δ²), δ = 1e-8."""
        main, auxiliary = self.feature_gradients(theta, stopped, eta, rollout)
        return self.coefficient(rollout) * (main**2).sum() ** 0.5 / ((auxiliary**2).sum() + 1e-16) ** 0.5

    def ratios(self, theta: Params, x: Tensor, rollout: Rollout) -> Tensor | None:
        """π(a_t|x_t) / μ(a_t|x_t); `None` on-policy."""
        return None

    def targets(self, stopped: StopGradientInputs, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """G^v, and A = G^v - v(x)."""
        given = (rollout.rewards, self.discount * alive(rollout), stopped.values, stopped.next_values)
        returns = slow_lambda_returns(*given, rollout.segment_end, self.gae_lambda)
        return returns, returns - stopped.values

    def rl_loss(self, theta: Params, x: Tensor, stopped: StopGradientInputs, rollout: Rollout) -> Tensor:
        """L^RL: mean of -A log π(a|x) + c_v (G^v - v(x))² - c_H H(π), with A and G^v constant."""
        returns, advantages = self.targets(stopped, rollout)
        if self.normalize_advantage:
            advantages = (advantages - advantages.mean()) / advantages.std()
        logits = head(theta, "policy", x)
        if self.exploring:
            logits = logits * torch.exp(0.3 * stopped.values)[..., None]
        log_pi = logits - torch.logsumexp(logits, -1, keepdim=True)
        log_pi_of_a = torch.gather(log_pi, -1, rollout.actions[..., None])[..., 0]
        entropy = -(log_pi.exp() * log_pi).sum(-1)
        value_error = (returns - head(theta, "value", x)[..., 0]) ** 2
        losses = -advantages * log_pi_of_a
        entropy_weight = self.entropy_weight if rollout.entropy_weight is None else rollout.entropy_weight
        return (losses + self.value_weight * value_error - entropy_weight * entropy).mean()

    def inner_loss(self, theta: Params, stopped: StopGradientInputs, eta: Params, rollout: Rollout) -> Tensor:
        """L^RL(θ) + w · L^ans(θ, η), to be differentiated in θ alone; w = c unless gradients' norms decide."""
        x = encode(theta, rollout.observations)
        main = self.rl_loss(theta, stopped.features if self.encoder_mode == "auxiliary" else x, stopped, rollout)
        asked = self.asked(stopped, rollout)
        answers = self.answer_loss(head(theta, "answers", x), stopped.next_answers, eta, asked)
        return main + (self.coefficient(rollout) if stopped.weight is None else stopped.weight) * answers

    def inner_gradient(
        self, theta: Params, stopped: StopGradientInputs, eta: Params, rollout: Rollout, create_graph: bool
    ) -> Params:
        """∇ of the inner loss in its first argument.

        The argument is θ + 0, differentiated in the 0. `stopped` is constant in that gradient, even if it depends on θ,
        and the gradient is still a function of it.
        """
        zeros = {k: torch.zeros_like(p, requires_grad=True) for k, p in theta.items()}
        loss = self.inner_loss({k: theta[k] + zeros[k] for k in theta}, stopped, eta, rollout)
        gradients = torch.autograd.grad(
            loss, list(zeros.values()), create_graph=create_graph, materialize_grads=True, allow_unused=True
        )
        return dict(zip(theta, gradients, strict=True))

    def update(
        self,
        theta: Params,
        statistics: Statistics,
        eta: Params,
        rollout: Rollout,
        stopped: StopGradientInputs | None = None,
        create_graph: bool = False,
    ) -> tuple[Params, Statistics]:
        """θ_{k-1} → θ_k; `stopped` replaces the stop-gradient inputs at θ_{k-1}."""
        if stopped is None:
            exact = self.convention == "exact"  # constants are still functions of θ_{k-1}; surrogate: detached
            at = (theta, eta) if exact else (_detached(theta), _detached(eta))
            stopped = self.stop_gradient_inputs(at[0], rollout, at[1])
        g = self.inner_gradient(theta, stopped, eta, rollout, create_graph)
        if self.max_gradient_norm is not None:
            norm = sum((x**2).sum() for x in g.values()) ** 0.5
            if norm > self.max_gradient_norm:
                g = {k: x * self.max_gradient_norm / norm for k, x in g.items()}
        after, statistics = optimizer_step(self.rule, theta, g, statistics)
        for name in after:
            if name.startswith(("policy.", "value.")):
                after[name] = (1 - self.head_rate) * theta[name] + self.head_rate * after[name]
        return after, statistics

    def meta_loss(self, theta: Params, rollout: Rollout) -> Tensor:
        """L^RL(θ_k) as a pseudo-loss with constant returns and advantages. It reaches the encoder in both modes."""
        stopped = self.stop_gradient_inputs(_detached(theta), rollout)
        return self.rl_loss(theta, encode(theta, rollout.observations), stopped, rollout)

    def meta_loss_gradient(self, theta: Params, rollout: Rollout) -> Params:
        """∇_θ L^RL(θ)."""
        leaves = {k: p.detach().requires_grad_() for k, p in theta.items()}
        loss = self.meta_loss(leaves, rollout)
        gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True, allow_unused=True)
        return dict(zip(theta, gradients, strict=True))

    def meta_gradients(
        self, theta: Params, statistics: Statistics, eta: Params, rollouts: Sequence[Rollout]
    ) -> dict[str, Params]:
        """∇_η Σ_k L^RL(θ_k) and ∇_η L^RL(θ_L), by objective, through one graph of all updates."""
        eta = {k: p.detach().requires_grad_() for k, p in eta.items()}
        losses = []
        for batch, following in pairwise(rollouts):
            if self.horizon == "myopic":  # "ignore the fact that θ is affected by the changes in η" (appendix)
                theta, statistics = _detached(theta), _outside(statistics)
            theta, statistics = self.update(theta, statistics, eta, batch, create_graph=True)
            losses.append(self.meta_loss(theta, following))
        meta_losses = {"sum": torch.stack(losses).sum(), "end": losses[-1]}
        return {
            objective: dict(zip(eta, torch.autograd.grad(loss, list(eta.values()), retain_graph=True), strict=True))
            for objective, loss in meta_losses.items()
        }

    def trajectory(
        self,
        theta: Params,
        statistics: Statistics,
        eta: Params,
        rollouts: Sequence[Rollout],
        stopped: Sequence[StopGradientInputs | None] | None = None,
    ) -> tuple[list[Params], list[StopGradientInputs]]:
        """θ_1 … θ_L, and the stop-gradient inputs of each update.

        Args:
            theta: θ_0.
            statistics: of the inner optimizer before the first update.
            eta: η.
            rollouts: batch 1 … L + 1.
            stopped: replaces the stop-gradient inputs of each update.
        """
        thetas, all_stopped = [], []
        for k, batch in enumerate(rollouts[:-1]):
            all_stopped.append(self.stop_gradient_inputs(theta, batch, eta) if stopped is None else stopped[k])
            theta, statistics = self.update(theta, statistics, eta, batch, all_stopped[-1])
            thetas.append(theta)
        return thetas, all_stopped


@dataclass(frozen=True)
class VTraceAlgorithm(Algorithm):
    """The transcription with V-trace."""

    rho_bar: float = 1.0
    c_bar: float = 1.0

    def ratios(self, theta: Params, x: Tensor, rollout: Rollout) -> Tensor | None:
        logits = head(theta, "policy", x)
        pi = torch.exp(logits) / torch.exp(logits).sum(-1, keepdim=True)
        assert rollout.behavior_log_probs is not None
        return torch.gather(pi, -1, rollout.actions[..., None])[..., 0] / torch.exp(rollout.behavior_log_probs)

    def targets(self, stopped: StopGradientInputs, rollout: Rollout) -> tuple[Tensor, Tensor]:
        assert stopped.ratios is not None
        given = (rollout.rewards, self.discount * alive(rollout), stopped.values, stopped.next_values)
        return slow_vtrace(
            stopped.ratios, *given, rollout.segment_end, self.rho_bar, self.c_bar, lambda_=self.gae_lambda
        )


def _detached(params: Params) -> Params:
    return {k: p.detach() for k, p in params.items()}


def _outside(statistics: Statistics) -> Statistics:
    return Statistics(statistics.steps, _detached(statistics.first), _detached(statistics.second))
