"""Settings, what the experiments compare, and which runs they share."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest

from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.experiments.records import read_configs, read_records
from dgvf_agents.experiments.reproduce import Reproduction
from dgvf_agents.experiments.runs import Cell
from dgvf_agents.experiments.settings import (
    FRESH_SEED,
    REFERENCES,
    SCALES,
    Scale,
    game_of_world,
    reference_of,
    setting,
    title_of_world,
    world_of_game,
)
from dgvf_agents.train.config import ATARI_METHODS, WORLDS, TrainConfig, atari_config, differences, preset

FULL, TINY = SCALES["full"], SCALES["tiny"]
GRIDS = ("puddle-world", "collect-objects")


def test_a_setting_is_a_preset_with_changes() -> None:
    study = setting("collect-objects", "discovered", "two", questions=2)
    expected = dataclasses.replace(
        preset("collect-objects", "discovered"), questions=2, seed=3, compile=True, storage="graph"
    )
    assert study.config(FULL, seed=3) == expected
    lost = setting("puddle-world", "a2c").config(FULL, seed=3)
    assert lost.evaluation_kwargs == {"max_episode_steps": 1_000}  # a seed counts as -1,000 at most


def test_committed_records_have_the_settings_of_today() -> None:
    """A changed default or preset would make `dgvf reproduce` refuse them."""
    store = Path(__file__).parents[2] / "docs" / "results" / "records"
    records, found = read_records(store), set[str]()
    for experiment in EXPERIMENTS.values():
        for world in experiment.worlds:
            trials = [one for search in experiment.searches(world) for of in search.candidates for one in of]
            for one in (*experiment.compared(world, records), *trials):
                if recorded := read_configs(store, one.world).get(one.name):
                    assert not differences(recorded, Cell.of(one, 200, FULL, Path()).fields), one.folder_name
                    found.add(one.folder_name)
    assert found == {f"{row.world}/{row.setting}" for row in records.itertuples()}


OUTSIDE = ("own-tasks", "joint", "ppo-tasks")
"""Experiments on tasks of other packages."""


def test_equal_settings_share_their_folder() -> None:
    changed = setting("puddle-world", "discovered", unroll_length=25, questions=2)
    assert changed.folder_name == "puddle-world/discovered,questions=2,unroll_length=25"
    usual = preset("puddle-world", "discovered")
    assert setting("puddle-world", "discovered", questions=usual.questions).folder_name == "puddle-world/discovered"
    assert setting("puddle-world", "a2c", env_wrapper="a/b:C").folder_name.count("/") == 1
    for world in (*WORLDS, "atari/Breakout", "CartPole-v1", "minatar/asterix"):
        folders: dict[str, TrainConfig] = {}
        for experiment in EXPERIMENTS.values():
            own = {"atari": ["atari/Breakout"], **{name: EXPERIMENTS[name].worlds for name in OUTSIDE}}
            if world not in own.get(experiment.name, WORLDS):
                continue
            settings = experiment.settings(world)
            assert len({one.label for one in settings}) == len(settings)
            for one in settings:
                config = one.config(FULL, 0)
                assert folders.setdefault(one.folder_name, config) == config


@pytest.mark.parametrize("world", GRIDS)
def test_experiments_ask_for_what_the_paper_varies(world: str) -> None:
    def varied(name: str, field: str) -> list[object]:
        return [getattr(one.config(FULL, 0), field) for one in EXPERIMENTS[name].settings(world)]

    tasks = ["discovered", "random", "reward-prediction", "none"]
    assert varied("figure-2", "task") == tasks
    assert varied("figure-2", "encoder_mode") == ["auxiliary"] * 3 + ["joint"]
    assert varied("figure-4", "objective") == ["sum", "end"]
    assert sorted(varied("figure-5", "unroll_length")) == [1, 2, 5, *[10] * 7, 25, 50]
    assert sorted(varied("figure-5", "questions")) == [2, 8, 32, 64, *[128] * 8]
    assert varied("figure-5", "horizon").count("myopic") == 1
    assert varied("convention", "convention") == ["exact", "surrogate"]
    assert varied("rms-prop", "task") == 3 * tasks
    assert varied("rms-prop", "rms_prop") == ["tensorflow"] * 4 + ["pytorch"] * 4 + ["tensorflow"] * 4
    assert varied("rms-prop", "loss_reduction") == ["mean"] * 8 + ["sum"] * 4
    if world == "collect-objects":  # the paper's 3M steps in figure 2; studies at the same constant rate
        assert set(varied("figure-2", "steps")) == {3_000_000}
        assert set(varied("figure-5", "steps")) == {1_000_000}
        for name in ("figure-2", "figure-4", "figure-5", "convention", "rms-prop"):
            assert set(varied(name, "learning_rate")) == {5e-4}
            assert set(varied(name, "final_learning_rate")) == {None}


@pytest.mark.parametrize("world", WORLDS)
def test_agents_take_the_questions_of_the_run_with_their_seed(world: str) -> None:
    settings = EXPERIMENTS["question-transfer"].settings(world)
    labels = ["discovered", "random", "frozen", *(f"principal-{k}" for k in (1, 2, 4, 16)), "other-world"]
    assert [one.label for one in settings] == labels[: 7 if world == "collect-objects-small" else 8]
    for one in settings[2:]:
        config, source = one.config(FULL, 202), one.source.config(FULL, 202)
        taken = (Path("/out") / one.folder_name / "seed-202" / str(config.questions_from)).resolve()
        assert taken == Path("/out") / one.source.folder_name / "seed-202"
        assert (config.seed, source.seed) == (202 + FRESH_SEED, 202)
        assert (source.task, source.env != config.env) == ("discovered", one.label == "other-world")


def test_games_have_the_papers_agents() -> None:
    settings = EXPERIMENTS["atari"].settings("atari/Pong")
    parts = [one.label.split(": ")[0] for one in settings]
    assert [parts.count(part) for part in ("representation", "objective", "joint", "laptop")] == [5, 2, 5, 1]
    for one, method in zip(settings, ATARI_METHODS, strict=False):
        expected = dataclasses.replace(atari_config("Pong", method), algorithm="impala", compile=True)
        assert one.config(FULL, 0) == expected
    configs = {one.label: one.config(FULL, 0) for one in settings}
    assert settings[5].folder_name == settings[0].folder_name  # the summed meta-loss
    assert {config.encoder_mode for label, config in configs.items() if label.startswith("joint")} == {"joint"}


def test_scales_shrink_steps() -> None:
    config = preset("puddle-world", "discovered")
    assert FULL.apply(config) == dataclasses.replace(config, compile=True)
    assert SCALES["small"].apply(config).steps == config.steps // 4
    impala = dataclasses.replace(atari_config("Pong", "a2c"), algorithm="impala")
    assert (Scale(steps=7, actors=3).apply(impala).actors, Scale(steps=7).apply(impala).steps) == (3, 7)
    tiny, game = TINY.apply(config), TINY.apply(atari_config("Pong", "discovered"))
    assert tiny.env_kwargs == {**config.env_kwargs, "max_episode_steps": 40}
    for one in (tiny, game):
        assert (one.steps, one.compile, one.evaluate_every) == (960, False, 480)
    assert (game.atari.max_frames, game.env_kwargs) == (160, {})


def test_references_are_the_documentation_s() -> None:
    folder = Path(__file__).parents[2] / "docs" / "environments"
    for world in WORLDS:
        reference = REFERENCES[world]
        assert title_of_world(world) == preset(world, "a2c").env
        with (folder / f"{title_of_world(world)}.csv").open(encoding="utf-8") as file:
            _, optimal, random, *_ = csv.reader(file)
        assert reference.optimal == pytest.approx(float(optimal[1]), rel=1e-3)
        if reference.random is not None:
            assert reference.random == pytest.approx(float(random[1]), rel=5e-3)
            assert (reference.normalized(reference.random), reference.normalized(3.0)) == (0.0, 1.0)
    assert world_of_game("ms_pacman") == "atari/MsPacman"
    assert (game_of_world("atari/MsPacman"), game_of_world("puddle-world")) == ("MsPacman", None)
    pong = reference_of("atari/Pong")
    assert (pong.normalized(-20.7), pong.normalized(14.6)) == (0.0, 1.0)
    assert reference_of("atari/Adventure").random is None


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"jobs": 0}, "jobs"),
        ({"steps": 0}, "steps"),
        ({"seeds": 0}, "seeds"),
        ({"device": "gpu"}, "device"),
        ({"worlds": ()}, "worlds of figure-2"),
        ({"experiment": "joint", "worlds": ("puddle-world",)}, "worlds of joint"),
        ({"worlds": ("CartPole-v1",)}, "worlds of figure-2"),
        ({"game": ("Pong",)}, "game"),
        ({"experiment": "atari"}, "game"),
        ({"address": "auto"}, "address"),
        ({"experiment": "atari", "games": 0}, "games"),
        ({"experiment": "atari", "games": 58}, "games"),
        ({"experiment": "atari", "game": ("Pong",), "worlds": ("puddle-world",)}, "worlds of atari"),
    ],
)
def test_bad_options_are_named(arguments: dict[str, object], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must "):
        Reproduction(**{"experiment": "figure-2", **arguments})  # type: ignore[arg-type]


def test_only_declared_runs_go_to_the_committed_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    committed = Path("docs/results/records")
    assert Reproduction(experiment="figure-2").records_folder == Path("runs/full/records")
    committed.mkdir(parents=True)
    assert Reproduction(experiment="figure-2").records_folder == committed
    assert Reproduction(experiment="figure-2", steps=99, out=tmp_path).records_folder == tmp_path / "records"
    assert Reproduction(experiment="figure-2", scale="small").records_folder == Path("runs/small/records")
    assert Reproduction(experiment="atari", game=("Pong", "pong")).all_worlds == ("atari/Pong",)
