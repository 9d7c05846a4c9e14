"""Discovery of questions in one file: `python examples/discovery_in_one_file.py --seed 0`.

An actor-critic learns its encoder by answering questions that it discovers: general value functions whose cumulants
come from a question network, trained by a meta-gradient through ten updates of the agent. The meta-gradient is
`DGVFA2C`'s, in plain PyTorch. Equations, sections and figures refer to Veeriah et al., *Discovery of Useful Questions
as Auxiliary Tasks* (NeurIPS 2019). Shapes: T steps of B environments, D questions, F features.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import gymnasium as gym
import torch
import torch.nn.functional as F
import tyro
from gymnasium.vector import AutoresetMode
from torch import Tensor

Params = dict[str, Tensor]


@dataclass(frozen=True)
class Settings:
    env: str = "dgvf_envs:CollectObjectsSmall-v0"  # environment with observations [C, H, W] and discrete actions
    steps: int = 300_000  # environment steps, summed over all environments
    seed: int = 0  # seed of parameters, environments and actions
    n_envs: int = 16  # B, environments in parallel (paper: 16)
    n_steps: int = 5  # T, steps per environment and update (paper: 5)
    gamma: float = 0.99  # discount of the main task
    learning_rate: float = 3e-3  # α′, learning rate of RMSProp on θ
    value_coef: float = 0.5  # coefficient of the mean squared value error
    entropy_coef: tuple[float, float] = (0.03, 0.01)  # first and last; changes by the same factor per step
    encoder: Literal["auxiliary", "joint"] = "auxiliary"  # trained by the questions alone, or by the main task too
    questions: int = 128  # D, number of questions (paper: 128)
    question_discount: float = 0.9  # discount of the questions ("hand-tuned" in the paper)
    answer_coef: float = 0.1  # c, weight of the answer loss
    unroll_length: int = 10  # L, updates of θ per update of η (paper: 10)
    meta_learning_rate: float = 3e-4  # α, learning rate of Adam on η
    meta_max_norm: float = 1.0  # maximum norm of the meta-gradient (paper, table 1: 1)
    evaluate_every: int = 20_000  # environment steps between evaluations


# --- Networks: named parameters, and functions of them (section 3.1, appendix) ----------------------------------------


def initial_params(envs: gym.vector.VectorEnv, heads: dict[str, int]) -> Params:
    """Heads of the given widths, and an encoder. With PyTorch's default weights, discovery does not start."""
    channels, rows, columns = envs.single_observation_space.shape  # type: ignore[misc]
    shapes: dict[str, tuple[int, ...]] = {name: (outputs, 512) for name, outputs in heads.items()}
    shapes |= {"conv1": (8, channels, 2, 2), "conv2": (16, 8, 2, 2), "hidden": (512, 16 * (rows - 2) * (columns - 2))}
    gains = {"policy": 0.01, "value": 1.0, "answers": 1.0, "cumulants": 1.0}  # others: √2, for ReLUs
    weights = {k: torch.nn.init.orthogonal_(torch.empty(n), gains.get(k, math.sqrt(2.0))) for k, n in shapes.items()}
    biases = {f"{k}.bias": torch.zeros(len(weight)) for k, weight in weights.items()}
    return {f"{k}.weight": weight for k, weight in weights.items()} | biases


def encode(params: Params, observations: Tensor) -> Tensor:
    """x: features `[..., F]` of observations `[..., C, H, W]`."""
    x = observations.flatten(0, -4).to(params["conv1.weight"].dtype)
    for layer in ("conv1", "conv2"):
        x = F.relu(F.conv2d(x, params[f"{layer}.weight"], params[f"{layer}.bias"]))
    return F.relu(head(params, "hidden", x.flatten(1))).unflatten(0, observations.shape[:-3])


def head(params: Params, name: str, x: Tensor) -> Tensor:
    return F.linear(x, params[f"{name}.weight"], params[f"{name}.bias"])


# --- Experience -------------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    observations: Tensor  # o_t [T, B, C, H, W]
    actions: Tensor  # a_t [T, B]
    rewards: Tensor  # R_{t+1} [T, B]
    next_observations: Tensor  # o_{t+1} [T, B, C, H, W]; at the end of an episode its final observation
    terminated: Tensor  # [T, B] boolean: the return does not bootstrap from o_{t+1}
    segment_end: Tensor  # [T, B] boolean: the return ends here, with the episode or with the batch
    entropy_coef: float


class Collector:
    def __init__(self, settings: Settings, n_envs: int, seed: int) -> None:
        self.settings, self.steps = settings, 0
        self.envs = gym.make_vec(settings.env, num_envs=n_envs, autoreset_mode=AutoresetMode.SAME_STEP)
        self.observations = torch.tensor(self.envs.reset(seed=seed)[0])

    def collect(self, theta: Params) -> Batch:
        """Algorithm 1: "Generate experience using parameters θ"."""
        rows = [self.step(theta) for _ in range(self.settings.n_steps)]
        o, a, r, next_o, terminated, segment_end = (torch.stack(column) for column in zip(*rows, strict=True))
        segment_end[-1] = True
        (first, last), progress = self.settings.entropy_coef, self.steps / self.settings.steps
        self.steps += segment_end.numel()
        return Batch(o, a, r, next_o, terminated, segment_end, first ** (1 - progress) * last**progress)

    @torch.no_grad()
    def step(self, theta: Params, greedy: bool = False) -> tuple[Tensor, ...]:
        """One step of every environment: o_t, a_t, R_{t+1}, o_{t+1}, terminated, and whether the episode ended."""
        logits = head(theta, "policy", encode(theta, self.observations))
        actions = logits.argmax(-1) if greedy else torch.multinomial(logits.softmax(-1), 1)[:, 0]
        observations, rewards, terminated, truncated, infos = self.envs.step(actions.numpy())
        before, self.observations, done = self.observations, torch.tensor(observations), terminated | truncated
        after = self.observations.clone()
        if done.any():  # `observations` are already the first of the next episode
            after[done] = torch.stack([torch.tensor(o) for o in infos["final_obs"][done]])
        return before, actions, torch.tensor(rewards).float(), after, torch.tensor(terminated), torch.tensor(done)


# --- The pseudo-losses L^RL and L^ans (section 3.4) -------------------------------------------------------------------


class Stopped(NamedTuple):  # stop-gradient inputs: the gradient of a pseudo-loss treats them as constants
    theta: Params
    x: Tensor  # features of o_t [T, B, F]
    x_next: Tensor  # features of o_{t+1} [T, B, F], zero where no return ends


def stop_gradient_inputs(theta: Params, batch: Batch) -> Stopped:
    x = encode(theta, batch.observations)
    x_next = torch.zeros_like(x)
    x_next[batch.segment_end] = encode(theta, batch.next_observations[batch.segment_end])
    return Stopped(theta, x, x_next)


def n_step_returns(cumulants: Tensor, discount: float, bootstraps: Tensor, batch: Batch) -> Tensor:
    """G_t = Σ_{j=0}^{W} γ^j c_{t+j+1} + γ^{W+1} bootstrap_{t+W+1}; all `[T, B, D]`."""
    discounts = discount * (~batch.terminated).to(cumulants.dtype)[..., None]
    g, returns = bootstraps[-1], []
    for t in reversed(range(len(cumulants))):
        g = cumulants[t] + discounts[t] * torch.where(batch.segment_end[t][:, None], bootstraps[t], g)
        returns.append(g)
    return torch.stack(returns[::-1])


def rl_loss(theta: Params, x: Tensor, stopped: Stopped, batch: Batch, settings: Settings) -> Tensor:
    """L^RL: -∇ is (G^v - v) ∂log π/∂θ^π for the policy and (G^v - v) ∂v/∂θ^v for the value, plus an entropy bonus."""
    g = n_step_returns(batch.rewards[..., None], settings.gamma, head(stopped.theta, "value", stopped.x_next), batch)
    advantages = g - head(stopped.theta, "value", stopped.x)
    log_pi = F.log_softmax(head(theta, "policy", x), -1)
    policy_loss = -advantages * log_pi.gather(-1, batch.actions[..., None])
    value_loss = (g - head(theta, "value", x)) ** 2
    entropy = -(log_pi.exp() * log_pi).sum(-1)
    return policy_loss.mean() + settings.value_coef * value_loss.mean() - batch.entropy_coef * entropy.mean()


def ask(eta: Params, next_observations: Tensor) -> Tensor:
    """u: cumulants `[T, B, D]` of o_{t+1}, the question network (figure 1, right)."""
    return torch.arctan(head(eta, "cumulants", encode(eta, next_observations)))


def answer_loss(theta: Params, x: Tensor, stopped: Stopped, eta: Params, batch: Batch, settings: Settings) -> Tensor:
    """L^ans: -∇ is Σ_i (G^{y_i} - y_i) ∂y_i/∂θ. Through the cumulants it is a function of η too."""
    bootstraps = head(stopped.theta, "answers", stopped.x_next)
    g = n_step_returns(ask(eta, batch.next_observations), settings.question_discount, bootstraps, batch)
    return 0.5 * ((g - head(theta, "answers", x)) ** 2).sum(-1).mean()


# --- Algorithm 1 ------------------------------------------------------------------------------------------------------


def inner_update(theta: Params, moment: Params, eta: Params, batch: Batch, settings: Settings) -> tuple[Params, Params]:
    """Equation 2: θ_k ← θ_{k-1} - α′ ∇_θ [L^RL + c · L^ans], differentiable in θ_{k-1}, moment and η.

    The gradient is that in `zeros`, which are added to θ. Stop-gradient inputs are computed without them: the gradient
    treats them as constants, but depends on them, and through them on θ_{k-1}.
    """
    stopped = stop_gradient_inputs(theta, batch)
    zeros = {name: torch.zeros_like(value, requires_grad=True) for name, value in theta.items()}
    moved = {name: value + zeros[name] for name, value in theta.items()}
    x = encode(moved, batch.observations)
    main = rl_loss(moved, x if settings.encoder == "joint" else stopped.x, stopped, batch, settings)
    loss = main + settings.answer_coef * answer_loss(moved, x, stopped, eta, batch, settings)
    gradients = torch.autograd.grad(loss, list(zeros.values()), create_graph=True)
    return rms_prop(theta, dict(zip(theta, gradients, strict=True)), moment, settings.learning_rate)


def rms_prop(theta: Params, gradient: Params, moment: Params, learning_rate: float) -> tuple[Params, Params]:
    """s ← 0.99 s + 0.01 g², θ ← θ - α′ g / (√s + ε), ε = 1e-5. At s = 0, √s would have an infinite derivative."""
    moment = {name: 0.99 * moment[name] + 0.01 * g**2 for name, g in gradient.items()}
    steps = {name: g / (moment[name].clamp(min=1e-37).sqrt() + 1e-5) for name, g in gradient.items()}
    return {name: value - learning_rate * steps[name] for name, value in theta.items()}, moment


def unroll(
    theta: Params, moment: Params, eta: Params, batch: Batch, collect: Callable[[Params], Batch], settings: Settings
) -> tuple[Params, Params, Batch, Params]:
    """Equation 1: θ_L, the moment, the batch that θ_L generated, and the meta-gradient ∇_η Σ_k L^RL(θ_k)."""
    meta_losses = []
    for _ in range(settings.unroll_length):
        theta, moment = inner_update(theta, moment, eta, batch, settings)
        batch = collect(theta)  # the next batch: it scores θ_k, then updates it
        stopped = stop_gradient_inputs(detached(theta), batch)
        meta_losses.append(rl_loss(theta, encode(theta, batch.observations), stopped, batch, settings))
    gradient = torch.autograd.grad(torch.stack(meta_losses).sum(), list(eta.values()))  # through all L updates
    return detached(theta), detached(moment), batch, dict(zip(eta, gradient, strict=True))


def detached(params: Params) -> Params:
    return {name: value.detach() for name, value in params.items()}


def meta_update(eta: Params, gradient: Params, optimizer: torch.optim.Adam, max_norm: float) -> None:
    """Equation 3: η ← η - α ∇_η Σ_k L^RL(θ_k) with Adam and clipping, unless the meta-gradient has exploded."""
    norm = math.sqrt(sum(float((g**2).sum()) for g in gradient.values()))
    if norm <= 1000.0:
        for name, value in eta.items():
            value.grad = gradient[name] * min(1.0, max_norm / norm)
        optimizer.step()


def train(settings: Settings) -> tuple[Params, Params]:
    """θ and η; prints the learning curve."""
    torch.manual_seed(settings.seed)
    collector = Collector(settings, settings.n_envs, settings.seed)
    actions, d = int(collector.envs.single_action_space.n), settings.questions  # type: ignore[attr-defined]
    theta = initial_params(collector.envs, {"policy": actions, "value": 1, "answers": d})
    eta = {name: p.requires_grad_() for name, p in initial_params(collector.envs, {"cumulants": d}).items()}
    moment = {name: torch.zeros_like(value) for name, value in theta.items()}
    optimizer = torch.optim.Adam(eta.values(), lr=settings.meta_learning_rate)
    start, batch = time.perf_counter(), collector.collect(theta)
    print("steps,sampled,greedy,seconds")
    while collector.steps < settings.steps:
        theta, moment, batch, gradient = unroll(theta, moment, eta, batch, collector.collect, settings)
        meta_update(eta, gradient, optimizer, settings.meta_max_norm)
        if collector.steps % settings.evaluate_every < batch.rewards.numel() * settings.unroll_length:
            sampled, greedy = evaluate(theta, settings), evaluate(theta, settings, greedy=True)
            print(f"{collector.steps},{sampled:.3f},{greedy:.3f},{time.perf_counter() - start:.1f}", flush=True)
    return theta, detached(eta)


def evaluate(theta: Params, settings: Settings, greedy: bool = False, episodes: int = 64) -> float:
    """Mean undiscounted return of episodes in environments of their own."""
    with torch.random.fork_rng():
        torch.manual_seed(10_000)
        collector = Collector(settings, episodes, seed=10_000)
        total, running = torch.zeros(episodes), torch.ones(episodes)
        while running.any():
            *_, rewards, _, _, done = collector.step(theta, greedy)
            total += running * rewards
            running *= ~done
    return float(total.mean())


if __name__ == "__main__":
    torch.set_num_threads(1)  # small networks: more threads only wait for each other
    train(tyro.cli(Settings))
