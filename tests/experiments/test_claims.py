"""Verdicts from records, the records themselves, and what a study wants next."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

from dgvf_agents.experiments.catalog import (
    COEFFICIENTS,
    EXPERIMENTS,
    FIRST_SEED,
    SEARCHED_GAMES,
    TRIAL_SEED,
    Search,
    best_setting,
)
from dgvf_agents.experiments.claims import CLAIMS, Claim, Finding, Verdict, findings
from dgvf_agents.experiments.records import (
    Record,
    add_records,
    merge_records,
    read_configs,
    read_records,
    tables_of,
)
from dgvf_agents.experiments.settings import MINATAR, reference_of
from dgvf_agents.train.config import METHODS
from tests import recomputation

NONE = read_records(Path("/nowhere"))
PUDDLE = "puddle-world"
SUM_OR_END = Claim(
    "", "ours", "figure-4", (PUDDLE,), ("sum", "end"), measure="solved", effect="difference", delta=0.3, seeds=10
)


def record(setting: str, seed: int, *returns: float, world: str = PUDDLE, processor: str = "one") -> Record:
    steps = tuple(80_000 * (i + 1) for i in range(len(returns)))
    origin = {"processor": processor, "code": "commit", "core_seconds": 1.0}
    return {"world": world, "setting": setting, "seed": seed, **origin, "steps": steps, "returns": returns}


def records(solved: Mapping[str, tuple[int, int]], processor: str = "one", first: int = FIRST_SEED) -> list[Record]:
    """Of solved and other seeds by setting."""
    return [
        record(name, first + i, -40.0 if i < good else -200.0, processor=processor)
        for name, (good, number) in solved.items()
        for i in range(number)
    ]


def table(tmp_path: Path, found: list[Record]) -> pd.DataFrame:
    add_records(tmp_path, found)
    return read_records(tmp_path)


def finding(tmp_path: Path, found: list[Record], claim: Claim = SUM_OR_END) -> Finding:
    (only,) = findings(table(tmp_path, found), [claim])
    return only


def test_every_claim_is_decidable() -> None:
    assert 18 <= len(CLAIMS) <= 24
    by_experiment = pd.Series([claim.experiment for claim in CLAIMS]).value_counts()
    assert by_experiment.max() <= 4
    for claim in CLAIMS:
        assert claim.delta > 0
        experiment = EXPERIMENTS.get(claim.experiment)
        if experiment is None:
            continue
        for world in claim.worlds:
            found = [*experiment.settings(world)]
            for search in experiment.searches(world):
                found += search.then(dict(search.candidates[0][0].changes))
            assert set(claim.settings) <= {one.label for one in found}
            if claim.measure == "solved":
                assert reference_of(world).solved is not None
            if world in experiment.worlds:
                assert claim.seeds <= experiment.seeds_on.get(world, experiment.seeds)


@pytest.mark.parametrize(
    ("sums", "ends", "delta", "verdict"),
    [
        (10, 2, 0.3, "supported"),
        (10, 2, 0.9, "inconclusive"),  # its interval is [0.36, 0.94]
        (8, 8, 0.3, "inconclusive"),
        (6, 10, 0.3, "contradicted"),
        (10, 10, 0.3, "contradicted"),
    ],
)
def test_the_interval_and_the_smallest_effect_decide(
    tmp_path: Path, sums: int, ends: int, delta: float, verdict: Verdict
) -> None:
    claim = dataclasses.replace(SUM_OR_END, delta=delta)
    found = finding(tmp_path, records({"discovered": (sums, 10), "discovered,objective=end": (ends, 10)}), claim)
    assert found.verdict == verdict
    assert found.effect.value == pytest.approx((sums - ends) / 10)


def test_a_claim_needs_its_seeds_on_one_processor(tmp_path: Path) -> None:
    solved = {"discovered": (10, 10), "discovered,objective=end": (0, 9)}
    assert finding(tmp_path / "few", records(solved)).verdict == "untested"
    elsewhere = [record("discovered,objective=end", FIRST_SEED + 9, -200.0, processor="two")]
    assert finding(tmp_path / "apart", records(solved) + elsewhere).seeds == {PUDDLE: 9}
    both = [*elsewhere, record("discovered", FIRST_SEED + 9, -40.0, processor="two")]
    assert finding(tmp_path / "both", records(solved) + both).seeds == {PUDDLE: 10}
    again = [record(name, FIRST_SEED, -40.0, processor="two") for name in solved]  # a seed counts once
    assert finding(tmp_path / "again", records(solved) + both + again).seeds == {PUDDLE: 10}
    for first in (0, TRIAL_SEED):  # before the claims, and of searches
        earlier = records(dict.fromkeys(solved, (10, 10)), first=first)
        assert finding(tmp_path / str(first), earlier).seeds == {PUDDLE: 0}


def test_runs_are_resampled_within_processors_where_these_have_several(tmp_path: Path) -> None:
    def of(processor: str, seeds: range, sums: float, ends: float) -> list[Record]:
        both = (("discovered", sums), ("discovered,objective=end", ends))
        return [record(name, seed, value, processor=processor) for seed in seeds for name, value in both]

    claim = dataclasses.replace(SUM_OR_END, measure="final")
    better = of("one", range(200, 205), -40.0, -60.0)
    found = finding(tmp_path / "two", [*better, *of("two", range(205, 210), -80.0, -80.0)], claim)
    assert found.effect == pytest.approx((10.0, 10.0, 10.0))  # interquartile means are -60 and -70
    alone = [*better, *of("one", range(205, 209), -80.0, -80.0), *of("two", range(209, 210), -80.0, -80.0)]
    found = finding(tmp_path / "alone", alone, claim)
    assert found.verdict != "untested"
    assert found.effect.low < found.effect.value < found.effect.high


def test_the_weakest_comparison_counts_and_holm_corrects(tmp_path: Path) -> None:
    own = {"discovered": (10, 10), "random": (0, 10), "reward-prediction": (5, 10)}
    settings = ("discovered", "random", "reward-prediction")
    claim = dataclasses.replace(SUM_OR_END, experiment="figure-2", settings=settings)
    found = table(tmp_path, records(own))
    (alone,) = findings(found, [claim])
    assert alone.effect.value == pytest.approx(0.5)
    faster = dataclasses.replace(claim, measure="area", effect="improvement", settings=("discovered", "random"))
    two = findings(found, [claim, faster])
    assert two[1].effect.value == pytest.approx(0.5)
    assert (two[0].verdict, two[1].verdict) == ("supported", "supported")
    assert two[1].p < two[0].p == alone.p
    untested = dataclasses.replace(claim, settings=("discovered", "a2c"))
    level = dataclasses.replace(claim, settings=("discovered",), effect="level")  # has no test
    corrected = findings(found, [claim, faster, untested, level])[0]
    assert corrected.p == pytest.approx(2 * alone.p)
    assert (corrected.verdict, corrected.effect) == ("inconclusive", alone.effect)  # by its p-value alone


def test_a_level_has_the_exact_interval_over_worlds(tmp_path: Path) -> None:
    level = dataclasses.replace(SUM_OR_END, settings=("sum",), effect="level")
    found = finding(tmp_path, records({"discovered": (9, 10)}), level)
    assert found.effect == pytest.approx((0.4, 0.555 - 0.5, 0.9975 - 0.5), abs=1e-3)
    assert (found.verdict, found.p) == ("supported", None)
    assert finding(tmp_path / "few", records({"discovered": (3, 10)}), level).verdict == "contradicted"
    assert finding(tmp_path / "some", records({"discovered": (8, 10)}), level).verdict == "inconclusive"


def test_an_independent_look_finds_the_same_runs(tmp_path: Path) -> None:
    found = [*records({"discovered": (7, 10)}), record("random", 200, -900.0, -50.0, -44.0, -44.0, -44.0, -44.0)]
    runs = tables_of(EXPERIMENTS["figure-2"].settings(PUDDLE), table(tmp_path, found))
    ours = runs.groupby("label")[["solved", "final"]].agg({"solved": "sum", "final": "mean"})
    theirs = recomputation.recompute(tmp_path).set_index("setting")[["solved", "final"]]
    pd.testing.assert_frame_equal(theirs, ours, check_names=False, check_dtype=False)


def test_an_independent_look_finds_the_same_effects() -> None:
    store = Path(__file__).parents[2] / "docs" / "results" / "records"
    theirs = recomputation.effects(recomputation.read(store)).sort_values("effect").groupby("claim").first()
    decided = [one for one in findings(read_records(store)) if one.verdict != "untested"]
    assert len(decided) >= 6
    for claim, _, effect, *_ in decided:
        found = theirs.loc[claim.key]
        assert found["effect"] == pytest.approx(effect.value, abs=1e-9)
        assert (found["low"], found["high"]) == pytest.approx(effect[1:], abs=0.01)


def test_records_keep_their_numbers_and_are_added_once(tmp_path: Path) -> None:
    one, two = record("discovered", 200, -40.25, -38.5), record("random", 201, -50.0, world="atari/Pong")
    add_records(tmp_path / "a", [one], {"puddle-world/discovered": {"questions": 128}})
    add_records(tmp_path / "b", [two, {**one, "code": "later"}, record("discovered", 201, -1.0)])
    merge_records(tmp_path / "a", tmp_path / "b")
    found = read_records(tmp_path / "a")
    assert found[["world", "setting", "seed", "code"]].to_numpy().tolist() == [
        ["atari/Pong", "random", 201, "commit"],
        [PUDDLE, "discovered", 200, "commit"],
        [PUDDLE, "discovered", 201, "commit"],
    ]
    assert found["returns"].map(list).tolist() == [[-50.0], [-40.25, -38.5], [-1.0]]
    assert found["steps"].map(list).tolist() == [[80_000], [80_000, 160_000], [80_000]]
    assert read_configs(tmp_path / "a", PUDDLE) == {"discovered": {"questions": 128}}
    before = {file: file.read_bytes() for file in (tmp_path / "a").glob("*.*")}
    merge_records(tmp_path / "a", tmp_path / "b")
    assert {file: file.read_bytes() for file in (tmp_path / "a").glob("*.*")} == before


def test_records_that_are_not_there_are_not_merged(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"merge must be a folder with records, got .*nothere"):
        merge_records(tmp_path, tmp_path / "nothere")


def trial_records(search: Search, finals: Mapping[tuple[float, float], float], seeds: int = 1) -> list[Record]:
    return [
        record(trial.name, TRIAL_SEED + i, finals.get((fields["learning_rate"], fields["final_ent_coef"]), -900.0))
        for (trial,) in search.candidates
        for fields in [dict(trial.changes)]
        for i in range(seeds)
    ]


def test_a_search_goes_on_with_the_best_and_chooses_among_equals_the_smaller_rate(tmp_path: Path) -> None:
    (search,) = EXPERIMENTS["figure-2"].searches(PUDDLE)
    assert len(search.wanted(NONE)) == 30
    best = {(1e-3, 1e-2): -38.0, (7e-4, 1e-2): -38.2, (3e-3, 1e-2): -37.9, (1e-4, 1e-4): -60.0}
    first = table(tmp_path, trial_records(search, best))
    wanted = search.wanted(first)
    assert len(wanted) == 30 + 6 * 2
    assert not search.chosen(first)
    second = table(tmp_path, trial_records(search, best, seeds=3))
    compared = EXPERIMENTS["figure-2"].compared(PUDDLE, second)
    assert [one.label for one in compared[4:]] == [f"{method}, paper's choice" for method in METHODS]
    assert {one.preset.learning_rate for one in compared} == {1e-3}
    choice = dict(compared[4].changes)
    assert (choice["learning_rate"], choice["final_ent_coef"]) == (7e-4, 1e-2)  # -38.2 is within 2% of -37.9


def test_among_equals_the_mean_over_the_run_decides_before_the_rate() -> None:
    means = {"final": [-38.2, -38.0, -38.1, -50.0], "average": [-60.0, -45.0, -45.5, -40.0]}
    assert best_setting(pd.DataFrame(means, index=["small", "middle", "large", "bad"])) == "middle"


def test_each_method_has_the_coefficient_that_is_best_over_two_games(tmp_path: Path) -> None:
    """In normalized returns: 150 points in Space Invaders are less than the published score of Asterix."""
    finals = {
        "none": ((20.0, 160.0),),  # for comparison only
        "discovered": ((0.0, 150.0), (19.7, 20.0), (0.0, 30.0)),
        "random": ((0.0, 150.0), (0.0, 150.0), (0.0, 150.0)),
        "reward-prediction": ((1.0, 1.0), (2.0, 2.0), (3.0, 3.0)),
    }
    found = [
        record(trial.name, TRIAL_SEED + i, score, world=trial.world)
        for search in EXPERIMENTS["joint"].searches("minatar/freeway")
        for candidate, scores in zip(search.candidates, finals[search.candidates[0][0].method], strict=True)
        for trial, score in zip(candidate, scores, strict=True)
        for i in range(2)
    ]
    assert [world for world in MINATAR if world in SEARCHED_GAMES] == list(SEARCHED_GAMES)
    compared = EXPERIMENTS["joint"].compared("minatar/freeway", table(tmp_path, found))
    assert [(one.label, *dict(one.changes).values()) for one in compared] == [
        ("none",),
        ("discovered", COEFFICIENTS[1]),
        ("random", COEFFICIENTS[0]),
        ("reward-prediction", COEFFICIENTS[2]),
    ]
    longer = EXPERIMENTS["joint"].compared("minatar/asterix", table(tmp_path, found))
    assert {one.label: one.preset.steps for one in longer if "6M" not in one.label} == dict.fromkeys(
        ["none", "discovered", "random", "reward-prediction"], 2_000_000
    )
    assert {dict(one.changes)["steps"] for one in longer if "6M" in one.label} == {6_000_000}
    fewer = [one for one in found if one["setting"] != "discovered,auxiliary_coefficient=0.001,steps=1000000"]
    assert len(EXPERIMENTS["joint"].compared("minatar/freeway", table(tmp_path / "fewer", fewer))) == 3
