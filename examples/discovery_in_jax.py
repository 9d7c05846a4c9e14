"""Discovery of questions as one compiled JAX program: `python examples/discovery_in_jax.py --world PuddleWorld-v0`.

Environments, acting, the inner updates of the agent, the meta-gradient through them and the meta-update are one
function of `jax.jit`, which `jax.vmap` turns into one for many agents that train side by side. The algorithm is
`DGVFA2C`'s with its settings for gridworlds, and `discovery_in_one_file.py`'s, which explains it; equations refer to
Veeriah et al., *Discovery of Useful Questions as Auxiliary Tasks* (NeurIPS 2019). Prints its speed as JSON.
Shapes: T steps of B environments, D questions, F features. Needs JAX: `pip install 'dgvf[jax]'`.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jax import Array

from dgvf_envs.collect_objects import CollectObjects

Params = dict[str, Array]


@dataclass(frozen=True)
class Settings:
    world: Literal["PuddleWorld-v0", "CollectObjects-v0"] = "CollectObjects-v0"  # environment
    agents: int = 1  # number of agents that train side by side, each with its own parameters and environments
    seed: int = 0  # seed of parameters, environments and actions
    seconds: float = 10.0  # time to train for, without compilation
    threads: int = 1  # processor cores to use
    n_envs: int = 16  # B, environments of an agent (paper: 16)
    n_steps: int = 5  # T, steps per environment and update (paper: 5)
    gamma: float = 0.99  # discount of the main task
    learning_rate: float = 7e-4  # α′, learning rate of RMSProp on θ
    value_coef: float = 0.5  # coefficient of the mean squared value error
    entropy_coef: float = 0.01  # coefficient of the entropy bonus
    questions: int = 128  # D, number of questions (paper: 128)
    question_discount: float = 0.9  # discount of the questions ("hand-tuned" in the paper)
    answer_coef: float = 0.03  # c, weight of the answer loss
    unroll_length: int = 10  # L, updates of θ per update of η (paper: 10)
    meta_learning_rate: float = 3e-4  # α, learning rate of Adam on η
    meta_max_norm: float = 1.0  # maximum norm of the meta-gradient (paper, table 1: 1)
    meta_skip_norm: float = 1000.0  # a meta-gradient with a larger norm has exploded and is skipped


# --- Environments as pure functions -----------------------------------------------------------------------------------

State = tuple[Array, ...]  # every field is [B]


class World(NamedTuple):
    actions: int  # number of actions
    reset_draws: int  # uniform draws of a reset
    step_draws: int  # uniform draws of a step
    limit: int  # time limit in steps
    reset: Callable[[Array], State]  # initial states from uniform draws [B, n]
    step: Callable[[State, Array, Array], tuple[State, Array, Array]]  # next states, rewards, whether they are terminal
    observe: Callable[[State], Array]  # observations [B, ...]


def puddle_world() -> World:
    """The state is a point (x, y)."""
    moves = 0.05 * np.array([[-1.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, -1.0, 1.0, 0.0]])
    mean_x, mean_y = np.array([[0.3], [0.4], [0.8]]), np.array([[0.6], [0.5], [0.9]])
    std_x, std_y = np.array([[0.1], [0.03], [0.03]]), np.array([[0.03], [0.1], [0.1]])

    def step(state: State, actions: Array, uniforms: Array) -> tuple[State, Array, Array]:
        noise = 0.05 * (uniforms.T - 0.5)
        x, y = jnp.clip(jnp.stack(state) + jnp.asarray(moves)[:, actions] + noise, 0.0, 1.0)
        exponent = 0.5 * (((x - mean_x) / std_x) ** 2 + ((y - mean_y) / std_y) ** 2)
        rewards = -1.0 - (jnp.exp(-exponent) / (jnp.pi * std_x * std_y)).sum(0)
        return (x, y), rewards, abs(1.0 - x) + abs(1.0 - y) < 0.1

    def reset(uniforms: Array) -> State:
        return jnp.full(len(uniforms), 0.2), jnp.full(len(uniforms), 0.4)

    return World(5, 0, 2, 5000, reset, step, lambda state: jnp.stack(state, -1))


def four_rooms() -> World:
    """The state is the agent's cell, and whether each object is there; cells and observations are tables."""
    world = CollectObjects()
    next_cell, starts = (np.asarray(table, np.int32) for table in world.constants[:2])
    observations = world.constants.observations

    def step(state: State, actions: Array, uniforms: Array) -> tuple[State, Array, Array]:
        cell, first, second = state
        cell = jnp.asarray(next_cell)[cell * 4 + actions]
        takes_first = (cell == world.first_cell) & first
        takes_second = (cell == world.second_cell) & second & ~first
        after = cell, first & ~takes_first, second & ~takes_second
        return after, 1.0 * takes_first + 2.0 * takes_second, takes_second

    def reset(uniforms: Array) -> State:
        cell = jnp.asarray(starts)[(uniforms[:, 0] * len(starts)).astype(jnp.int32)]
        return cell, cell >= 0, cell >= 0

    def observe(state: State) -> Array:
        cell, first, second = state
        return jnp.asarray(observations)[cell * 4 + first * 2 + second].astype(float)

    return World(4, 1, 0, 40, reset, step, observe)


WORLDS = {"PuddleWorld-v0": puddle_world, "CollectObjects-v0": four_rooms}


# --- Networks: named parameters, and functions of them ----------------------------------------------------------------


def initial_params(world: World, heads: dict[str, int], key: Array) -> Params:
    """Orthogonal weights of heads with the given widths, and of an encoder; zero biases, but for points in the square.

    A ReLU network of few inputs with zero biases is linear along every ray from the origin.
    """
    shape = world.observe(world.reset(jnp.zeros((1, world.reset_draws)))).shape[1:]
    if len(shape) == 3:
        cells = (shape[1] - 2) * (shape[2] - 2)
        shapes: dict[str, tuple[int, ...]] = {
            "layer1": (8, shape[0], 2, 2),
            "layer2": (16, 8, 2, 2),
            "layer3": (512, 16 * cells),
        }
    else:
        shapes = {"layer1": (128, *shape), "layer2": (128, 128)}
    features = next(reversed(shapes.values()))[0]
    shapes |= {name: (outputs, features) for name, outputs in heads.items()}
    gains = {"policy": 0.01, "value": 1.0, "answers": 1.0, "cumulants": 1.0}  # others: √2, for ReLUs
    params: Params = {}
    for name, n in shapes.items():
        key, drawn = jax.random.split(key)
        weight = jax.nn.initializers.orthogonal(gains.get(name, 2**0.5))(drawn, (n[0], int(np.prod(n[1:]))))
        params |= {f"{name}.weight": weight.reshape(n), f"{name}.bias": jnp.zeros(n[0])}
    if len(shape) == 1:
        params["layer1.bias"] = jax.random.uniform(key, (128,), minval=-1.0, maxval=1.0)
    return params


def encode(params: Params, observations: Array) -> Array:
    """x: features `[T, B, F]` of observations `[T, B, 2]` in the unit square or planes `[T, B, C, H, W]`."""
    x = observations.reshape(-1, *observations.shape[2:])
    if x.ndim == 2:
        x = 2.0 * x - 1.0
    for name in ("layer1", "layer2", "layer3"):
        if f"{name}.weight" in params:
            x = jax.nn.relu(layer(params, name, x))
    return x.reshape(*observations.shape[:2], -1)


def layer(params: Params, name: str, x: Array) -> Array:
    weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
    if weight.ndim == 4:
        return jax.lax.conv(x, weight, (1, 1), "VALID") + bias[:, None, None]
    return (x if x.shape[-1] == weight.shape[1] else x.reshape(len(x), -1)) @ weight.T + bias


# --- Experience -------------------------------------------------------------------------------------------------------


class Episodes(NamedTuple):  # B episodes in progress
    state: State
    steps: Array  # so far, [B]


class Batch(NamedTuple):
    observations: Array  # o_t [T, B, ...]
    actions: Array  # a_t [T, B]
    rewards: Array  # R_{t+1} [T, B]
    terminated: Array  # [T, B] boolean
    truncated: Array  # [T, B] boolean: by the time limit
    next_observations: Array  # o_{t+1} [T, B, ...]; at the end of an episode its final observation


def collect(world: World, theta: Params, episodes: Episodes, uniforms: Array) -> tuple[Batch, Episodes]:
    """Algorithm 1: "Generate experience using parameters θ". T steps from uniform draws `[T, B, n]`.

    The first draw of a step chooses the action, by inverse transform sampling.
    """

    def step(episodes: Episodes, uniforms: Array) -> tuple[Episodes, Batch]:
        noise, for_step, for_reset = jnp.split(uniforms, (1, 1 + world.step_draws), axis=-1)
        observations = world.observe(episodes.state)
        probabilities = jax.nn.softmax(layer(theta, "policy", encode(theta, observations[None])[0]))
        actions = (noise >= jnp.cumsum(probabilities, -1)[:, :-1]).sum(-1)
        state, rewards, terminated = world.step(episodes.state, actions, for_step)
        steps = episodes.steps + 1
        ended = terminated | (steps >= world.limit)
        outcome = Batch(observations, actions, rewards, terminated, ended & ~terminated, world.observe(state))
        state = tuple(jnp.where(ended, *fields) for fields in zip(world.reset(for_reset), state, strict=True))
        return Episodes(state, jnp.where(ended, 0, steps)), outcome

    episodes, batch = jax.lax.scan(step, episodes, uniforms)
    return batch, episodes


# --- The pseudo-losses L^RL and L^ans (section 3.4) -------------------------------------------------------------------


class Stopped(NamedTuple):  # stop-gradient inputs: the gradient of a pseudo-loss treats them as constants
    theta: Params
    x: Array  # features of o_t [T, B, F]
    x_next: Array  # features [2, B, F] of o_{T+1}, and of the final observation of a truncated episode


def stop_gradient_inputs(theta: Params, batch: Batch) -> Stopped:
    """An environment truncates at most one episode in a batch, because time limits are longer."""
    step = jnp.argmax(batch.truncated, 0)
    ends = jnp.stack([batch.next_observations[-1], batch.next_observations[step, jnp.arange(len(step))]])
    return Stopped(theta, encode(theta, batch.observations), encode(theta, ends))


def n_step_returns(cumulants: Array, discount: float, bootstraps: Array, batch: Batch) -> Array:
    """G_t = Σ_{j=0}^{W} γ^j c_{t+j+1} + γ^{W+1} bootstrap_{t+W+1}; `[T, B, D]` from bootstraps `[2, B, D]`."""
    g, returns = bootstraps[0], []
    for t in reversed(range(len(cumulants))):
        g = jnp.where(batch.truncated[t][:, None], bootstraps[1], g)
        g = cumulants[t] + discount * ~batch.terminated[t][:, None] * g
        returns.append(g)
    return jnp.stack(returns[::-1])


def rl_loss(s: Settings, theta: Params, x: Array, stopped: Stopped, batch: Batch) -> Array:
    """L^RL: -∇ is (G^v - v) ∂log π/∂θ^π for the policy and (G^v - v) ∂v/∂θ^v for the value, plus an entropy bonus."""
    g = n_step_returns(batch.rewards[..., None], s.gamma, layer(stopped.theta, "value", stopped.x_next), batch)
    advantages = g - layer(stopped.theta, "value", stopped.x)
    log_pi = jax.nn.log_softmax(layer(theta, "policy", x))
    policy_loss = -advantages * jnp.take_along_axis(log_pi, batch.actions[..., None], -1)
    value_loss = (g - layer(theta, "value", x)) ** 2
    entropy = -(jnp.exp(log_pi) * log_pi).sum(-1)
    return policy_loss.mean() + s.value_coef * value_loss.mean() - s.entropy_coef * entropy.mean()


def answer_loss(s: Settings, theta: Params, x: Array, stopped: Stopped, eta: Params, batch: Batch) -> Array:
    """L^ans: -∇ is Σ_i (G^{y_i} - y_i) ∂y_i/∂θ. Through the cumulants it is a function of η too."""
    cumulants = jnp.arctan(layer(eta, "cumulants", encode(eta, batch.next_observations)))
    g = n_step_returns(cumulants, s.question_discount, layer(stopped.theta, "answers", stopped.x_next), batch)
    return 0.5 * ((g - layer(theta, "answers", x)) ** 2).sum(-1).mean()


# --- Algorithm 1 ------------------------------------------------------------------------------------------------------


class Inner(NamedTuple):
    theta: Params
    moment: Params  # second moment of RMSProp


class Adam(NamedTuple):
    steps: Array
    first: Params
    second: Params


class Agent(NamedTuple):  # all that training changes, between two unrolls
    inner: Inner
    eta: Params
    adam: Adam
    batch: Batch  # the first of the next unroll
    episodes: Episodes
    key: Array


def inner_update(s: Settings, inner: Inner, eta: Params, batch: Batch) -> Inner:
    """Equation 2: θ_k ← θ_{k-1} - α′ ∇_θ [L^RL + c · L^ans]. The encoder learns from the answers alone.

    `jax.grad` differentiates in the first argument. Stop-gradient inputs are another one, so that the gradient treats
    them as constants, but depends on them, and through them on θ_{k-1}.
    """

    def loss(theta: Params, stopped: Stopped) -> Array:
        answers = answer_loss(s, theta, encode(theta, batch.observations), stopped, eta, batch)
        return rl_loss(s, theta, stopped.x, stopped, batch) + s.answer_coef * answers

    gradient = jax.grad(loss)(inner.theta, stop_gradient_inputs(inner.theta, batch))
    moment = {name: 0.99 * inner.moment[name] + 0.01 * g**2 for name, g in gradient.items()}
    steps = {name: g / (jnp.sqrt(jnp.maximum(moment[name], 1e-37)) + 1e-5) for name, g in gradient.items()}
    return Inner({name: value - s.learning_rate * steps[name] for name, value in inner.theta.items()}, moment)


def meta_loss(s: Settings, theta: Params, batch: Batch) -> Array:
    """L^RL of θ_k on the batch that θ_k generated."""
    stopped = jax.lax.stop_gradient(stop_gradient_inputs(theta, batch))
    return rl_loss(s, theta, encode(theta, batch.observations), stopped, batch)


def unroll(
    s: Settings, eta: Params, inner: Inner, batch: Batch, generate: Callable[[Params, Any], Any], source: Any
) -> tuple[Array, tuple[Inner, Batch, Any]]:
    """The meta-loss Σ_k L^RL(θ_k) of L updates, and what comes after them: θ_L, batch L + 1 and the last source.

    `generate(theta, source)` returns the next batch and the next source, here episodes in progress and a random key.
    """

    def update(carry: tuple[Inner, Batch, Any], k: Array) -> tuple[tuple[Inner, Batch, Any], Array]:
        inner, batch, source = carry
        loss = jnp.where(k > 0, meta_loss(s, inner.theta, batch), 0.0)  # the batch scores θ_k, then updates it
        inner = inner_update(s, inner, eta, batch)
        return (inner, *generate(jax.lax.stop_gradient(inner.theta), source)), loss

    last, losses = jax.lax.scan(update, (inner, batch, source), jnp.arange(s.unroll_length))
    return losses.sum() + meta_loss(s, last[0].theta, last[1]), last


def meta_update(s: Settings, eta: Params, gradient: Params, adam: Adam) -> tuple[Params, Adam]:
    """Equation 3: η ← η - α ∇_η Σ_k L^RL(θ_k) with Adam and clipping, unless the meta-gradient has exploded."""
    norm = jnp.sqrt(sum((g**2).sum() for g in gradient.values()))
    gradient = {
        name: g * jnp.where(norm > s.meta_max_norm, s.meta_max_norm / norm, 1.0) for name, g in gradient.items()
    }
    steps = adam.steps + 1.0
    first = {name: 0.9 * m + 0.1 * gradient[name] for name, m in adam.first.items()}
    second = {name: 0.999 * v + 0.001 * gradient[name] ** 2 for name, v in adam.second.items()}
    rate, root = s.meta_learning_rate / (1.0 - 0.9**steps), jnp.sqrt(1.0 - 0.999**steps)
    new = {name: p - rate * first[name] / (jnp.sqrt(second[name]) / root + 1e-8) for name, p in eta.items()}
    after, before = (new, Adam(steps, first, second)), (eta, adam)
    return jax.tree.map(partial(jnp.where, norm <= s.meta_skip_norm), after, before)


# --- The loop ---------------------------------------------------------------------------------------------------------


def generate(s: Settings, world: World, theta: Params, source: tuple[Episodes, Array]) -> tuple[Batch, Any]:
    """A batch under θ, and what the next one continues from."""
    episodes, (key, drawn) = source[0], jax.random.split(source[1])
    draws = 1 + world.step_draws + world.reset_draws
    batch, episodes = collect(world, theta, episodes, jax.random.uniform(drawn, (s.n_steps, s.n_envs, draws)))
    return batch, (episodes, key)


def new_agent(s: Settings, world: World, key: Array) -> Agent:
    """An agent before its first unroll."""
    for_theta, for_eta, for_reset, key = jax.random.split(key, 4)
    theta = initial_params(world, {"policy": world.actions, "value": 1, "answers": s.questions}, for_theta)
    eta = initial_params(world, {"cumulants": s.questions}, for_eta)
    state = world.reset(jax.random.uniform(for_reset, (s.n_envs, world.reset_draws)))
    batch, (episodes, key) = generate(s, world, theta, (Episodes(state, jnp.zeros(s.n_envs, jnp.int32)), key))
    zeros = partial(jax.tree.map, jnp.zeros_like)
    return Agent(Inner(theta, zeros(theta)), eta, Adam(jnp.zeros(()), zeros(eta), zeros(eta)), batch, episodes, key)


def iteration(s: Settings, world: World, agent: Agent) -> Agent:
    """L inner updates, each with a batch of its own, and a meta-update."""

    def loss(eta: Params) -> tuple[Array, tuple[Inner, Batch, Any]]:
        source = agent.episodes, agent.key
        return unroll(s, eta, agent.inner, agent.batch, partial(generate, s, world), source)

    gradient, (inner, batch, (episodes, key)) = jax.grad(loss, has_aux=True)(agent.eta)
    return Agent(inner, *meta_update(s, agent.eta, gradient, agent.adam), batch, episodes, key)


def main(s: Settings) -> dict[str, float]:
    """Train all agents for some seconds; their environment steps per second together, and their last mean reward."""
    if hasattr(os, "sched_setaffinity"):  # XLA has as many threads as there are cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: s.threads])
    if s.threads == 1:
        single = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {single}".strip()
    world = WORLDS[s.world]()
    agents = jax.jit(jax.vmap(partial(new_agent, s, world)))(jax.random.split(jax.random.PRNGKey(s.seed), s.agents))
    iterate = jax.jit(jax.vmap(partial(iteration, s, world)))
    start = time.perf_counter()
    agents = jax.block_until_ready(iterate(iterate(agents)))
    compiled, iterations = time.perf_counter(), 0
    while (seconds := time.perf_counter() - compiled) < s.seconds or not iterations:
        agents, iterations = jax.block_until_ready(iterate(agents)), iterations + 1
    steps = iterations * s.agents * s.unroll_length * s.n_steps * s.n_envs
    return {
        "steps": steps,
        "seconds": seconds,
        "steps_per_s": steps / seconds,
        "compilation_s": compiled - start,
        "mean_reward": float(agents.batch.rewards.mean()),
    }


if __name__ == "__main__":
    print(json.dumps(main(tyro.cli(Settings))))
