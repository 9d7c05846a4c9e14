"""Verdicts from records, the records themselves, and what a study wants next."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dgvf_agents.cli import main
from dgvf_agents.experiments.claims import CLAIMS, YARDSTICKS, Claim, Finding, Verdict, findings
from dgvf_agents.experiments.records import Record, add_records, merge_records, read_records, records_of
from dgvf_agents.experiments.statistics import (
    area_under_curve,
    final_return,
    fraction_estimate,
    holm,
    improvement,
    mean_difference,
    stratified_permutation_test,
    weighted,
)
from dgvf_agents.experiments.studies import FIRST_SEED, STUDIES, TRIAL_SEED, Search, name_of

NONE = pd.DataFrame(columns=["world", "setting", "seed", "processor", "code", "core_seconds", "steps", "returns"])
PUDDLE = "puddle-world"
SUM_OR_END = Claim(
    "", "ours", "figure-4", (PUDDLE,), ("sum", "end"), measure="solved", effect="difference", delta=0.3, seeds=10
)


def record(setting: str, seed: int, *returns: float, world: str = PUDDLE, processor: str = "one") -> Record:
    steps = tuple(80_000 * (i + 1) for i in range(len(returns)))
    return Record(world, setting, seed, processor, "commit", 1.0, steps, returns)


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
    assert 18 <= len(CLAIMS) <= 20
    by_experiment = pd.Series([claim.experiment for claim in CLAIMS]).value_counts()
    assert by_experiment.max() <= 4
    for claim in CLAIMS:
        assert claim.delta > 0
        study = STUDIES.get(claim.experiment)
        if study is None:
            continue
        assert set(claim.worlds) <= set(study.worlds)
        labels = {one.label for world in claim.worlds for one in study.settings[world]}
        assert {label.removesuffix(", paper's choice") for label in claim.settings} <= labels
        assert all(claim.seeds <= study.seeds[world] for world in claim.worlds)
        assert all(YARDSTICKS[world].solved is not None for world in claim.worlds)


@pytest.mark.parametrize(
    ("sums", "ends", "verdict"),
    [(10, 2, "supported"), (8, 8, "inconclusive"), (6, 10, "contradicted"), (10, 10, "contradicted")],
)
def test_the_interval_and_the_smallest_effect_decide(tmp_path: Path, sums: int, ends: int, verdict: Verdict) -> None:
    found = finding(tmp_path, records({"discovered": (sums, 10), "discovered,objective=end": (ends, 10)}))
    assert found.effect is not None
    assert found.verdict == verdict
    assert found.effect.value == pytest.approx((sums - ends) / 10)


def test_a_claim_needs_its_seeds_on_one_processor(tmp_path: Path) -> None:
    solved = {"discovered": (10, 10), "discovered,objective=end": (0, 9)}
    assert finding(tmp_path / "few", records(solved)).verdict == "untested"
    elsewhere = [record("discovered,objective=end", FIRST_SEED + 9, -200.0, processor="two")]
    assert finding(tmp_path / "apart", records(solved) + elsewhere).seeds == {PUDDLE: 9}
    both = [*elsewhere, record("discovered", FIRST_SEED + 9, -40.0, processor="two")]
    assert finding(tmp_path / "both", records(solved) + both).seeds == {PUDDLE: 10}


def test_a_fraction_has_its_exact_interval() -> None:
    value, low, high = fraction_estimate(10, 10)
    assert (value, high) == (1.0, 1.0)
    assert low == pytest.approx(0.025**0.1)  # all of ten: p^10 = 0.025


def test_the_permutation_test_agrees_with_scipy_in_one_stratum() -> None:
    x, y = np.array([3.0, 4.0, 5.0, 9.0]), np.array([1.0, 2.0, 3.5, 4.5])
    exact = stats.permutation_test(
        (x, y), lambda a, b, axis: np.mean(a, axis) - np.mean(b, axis), vectorized=True, alternative="greater"
    )
    found = stratified_permutation_test(weighted(mean_difference, [1.0]), [x, y])
    assert found == pytest.approx(float(exact.pvalue), abs=0.02)


def test_permutations_stay_in_their_stratum() -> None:
    """A large difference between strata makes no difference between X and Y."""
    x, y = [np.array([1.0, 2.0]), np.array([101.0, 102.0])], [np.array([1.0, 2.0]), np.array([101.0, 102.0])]
    x[0] = x[0] + 3.0  # 2 of 24 divisions of the first stratum are as large: 1 of 6
    assert stratified_permutation_test(weighted(mean_difference, [0.5, 0.5]), [*x, *y]) < 0.25


def test_improvement_counts_pairs() -> None:
    assert improvement(np.array([2.0, 3.0]), np.array([1.0, 3.0])) == pytest.approx((1 + 0 + 1 + 0.5) / 4 - 0.5)


def test_holm_multiplies_the_smallest_most() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_measures_of_a_curve() -> None:
    returns = np.array([0.0, 1.0, 1.0, 1.0, 1.0, 2.0])
    assert final_return(returns) == pytest.approx(1.2)
    assert area_under_curve(np.array([1.0, 3.0]), np.array([1.0, 2.0])) == pytest.approx((1 + 3) / 3)


def test_records_keep_their_numbers_and_are_added_once(tmp_path: Path) -> None:
    one, two = record("discovered", 200, -40.25, -38.5), record("random", 201, -50.0, world="atari/Pong")
    add_records(tmp_path / "a", [one], {"puddle-world/discovered": {"questions": 128}})
    add_records(tmp_path / "b", [two, dataclasses.replace(one, code="later"), record("discovered", 201, -1.0)])
    merge_records(tmp_path / "a", [tmp_path / "b"])
    found = records_of(read_records(tmp_path / "a"))
    assert sorted(found, key=lambda r: (r.world, r.seed)) == [two, one, record("discovered", 201, -1.0)]


def trial_records(search: Search, finals: Mapping[tuple[float, float], float], seeds: int = 1) -> list[Record]:
    return [
        record(name_of(trial), TRIAL_SEED + i, finals.get((fields["learning_rate"], fields["final_ent_coef"]), -900.0))
        for trial in search.trials(PUDDLE)
        for fields in [dict(trial.changes)]
        for i in range(seeds)
    ]


def test_a_search_goes_on_with_the_best_and_chooses_among_equals_the_smaller_rate(tmp_path: Path) -> None:
    search = Search()
    assert len(search.wanted(PUDDLE, NONE)) == 30
    best = {(1e-3, 1e-2): -38.0, (7e-4, 1e-2): -38.2, (3e-3, 1e-2): -37.9, (1e-4, 1e-4): -60.0}
    first = table(tmp_path, trial_records(search, best))
    wanted = search.wanted(PUDDLE, first)
    assert len(wanted) == 30 + 6 * 2
    assert search.choice(PUDDLE, first) is None
    second = table(tmp_path, trial_records(search, best, seeds=3))
    choice = search.choice(PUDDLE, second)
    assert choice is not None
    assert (choice["learning_rate"], choice["final_ent_coef"]) == (7e-4, 1e-2)  # -38.2 is within 2 % of -37.9
    compared = STUDIES["figure-2"].compared(PUDDLE, second)
    assert [one.label for one in compared[4:]] == [f"{m}, paper's choice" for m in ("discovered", *_OTHERS)]
    assert {one.preset.learning_rate for one in compared} == {1e-3}
    assert dict(compared[4].changes)["learning_rate"] == 7e-4


_OTHERS = ("random", "reward-prediction", "a2c")


def test_studies_share_runs() -> None:
    names = {
        study: {(name_of(one.setting), one.seed) for one in STUDIES[study].wanted(PUDDLE, NONE)} for study in STUDIES
    }
    assert ("discovered", 200) in names["figure-2"] & names["figure-4"] & names["figure-5"]
    for world in ("puddle-world", "collect-objects"):
        sums = {(name_of(one.setting), one.seed) for one in STUDIES["figure-4"].wanted(world, NONE)}
        lengths = {(name_of(one.setting), one.seed) for one in STUDIES["figure-5"].wanted(world, NONE)}
        assert len(sums & lengths) == STUDIES["figure-5"].seeds[world]


def test_a_lost_seed_is_not_minus_5000() -> None:
    for study in STUDIES.values():
        assert all(
            one.preset.evaluation_kwargs == {"max_episode_steps": 1_000} for one in study.settings["puddle-world"]
        )


def test_a_figure_is_trained_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "figure-4", "--scale", "tiny", "--worlds", PUDDLE, "--jobs", "2", "--out", str(tmp_path)]
    with pytest.raises(SystemExit):
        main([*command, "--no-run"])
    main(command)
    found = records_of(read_records(tmp_path / "records"))
    assert [(one.setting, one.seed) for one in found] == [
        (name, seed) for name in ("discovered", "discovered,objective=end") for seed in (200, 201)
    ]
    assert all(len(one.returns) == 2 and one.processor and one.core_seconds > 0 for one in found)
    capsys.readouterr()
    other = tmp_path / "elsewhere"
    main([*command[:-1], str(other), "--merge", str(tmp_path / "records")])  # trains nothing
    assert records_of(read_records(other / "records")) == found
    assert not list(other.rglob("config.json"))
