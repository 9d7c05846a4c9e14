"""What claims find in tables, on numbers chosen next to where it changes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pytest

from dgvf_agents.experiments import evidence
from dgvf_agents.experiments import paper_claims as claims
from dgvf_agents.experiments.catalog import EXPERIMENTS
from dgvf_agents.experiments.evidence import Evidence
from dgvf_agents.experiments.paper_claims import CLAIMS, Claim
from dgvf_agents.experiments.settings import method_in
from dgvf_agents.experiments.statistics import Estimate
from dgvf_agents.experiments.tables import Results, make_table
from dgvf_agents.experiments.worlds import SOLVED, reference_of
from dgvf_agents.train.config import METHODS

WORLD = "collect-objects-small"
LEVEL = SOLVED[WORLD]
Returns = Mapping[str, Sequence[float]]


def results(finals: Returns, averages: Returns | None = None, best: Returns | None = None) -> Results:
    """Tables of one world: final and average returns of seeds, and the best return of each seed's curve."""
    averages, best = averages or finals, best or finals
    cells, curves, means = [], [], []
    for label, returns in finals.items():
        for seed, (final, average) in enumerate(zip(returns, averages[label], strict=True)):
            cells.append((WORLD, label, seed, 300, "evaluation", final, average))
            heights = ((100, 0.0), (200, best[label][seed]), (300, LEVEL - 1), (400, best[label][seed]))
            curves += [(WORLD, label, seed, steps, value) for steps, value in heights]
        for quantity, table in (("final", finals), ("average", averages)):
            seeds = table[label]
            row = (sum(seeds) / len(seeds), min(seeds), max(seeds))
            means.append((WORLD, label, quantity, len(seeds), *row, 0.0, 0.0, 0.0))
    return Results(make_table("cells", cells), make_table("curves", curves), summary=make_table("summary", means))


def asked(found: Results, *settings: str, experiment: str = "gridworlds") -> Evidence:
    return Evidence(found, experiment, WORLD, settings)


def test_a_seed_is_solved_from_the_level_on() -> None:
    below = math.nextafter(LEVEL, -math.inf)
    found = results({"a": [LEVEL, below, LEVEL]}, best={"a": [LEVEL, below, below]})
    assert evidence.ends_solved(found, WORLD, "a") == [True, False, True]
    assert evidence.steps_to_solve(found, WORLD, "a") == [200, None, None]
    assert evidence.seconds_to_solve(found, WORLD, "a") == [None, None, None]
    assert claims.suffices(asked(found, "a")) == (
        "1 of 3 seeds get to 2.9, 2 end there; final returns 2.90, 2.90, 2.90 (optimal 3)",
        "~",
        "in part",
    )


def test_seconds_are_those_of_the_steps_of_the_same_run() -> None:
    found = results({"a": [LEVEL, LEVEL, LEVEL], "b": [LEVEL] * 4}, best={"a": [LEVEL, 0.0, LEVEL], "b": [LEVEL] * 4})
    other = found.curves.assign(world="puddle-world", seed=found.curves["seed"] + 5)
    known = [("puddle-world", "a"), (WORLD, "a"), (WORLD, "b"), ("puddle-world", "a"), ("puddle-world", "b")]
    times = [
        (world, setting, seed, steps, 1000.0 * k * (k != 1) + 10.0 * seed + steps)
        for k, (world, setting) in enumerate(known)
        for seed in (2, 1, 0)
        for steps in (100, 200)
    ]
    both = pd.concat([found.curves, other])
    timed = dataclasses.replace(found, curves=both, times=make_table("times", times))
    assert evidence.seconds_to_solve(timed, WORLD, "a") == [200.0, None, 220.0]
    assert evidence.seconds_to_solve(timed, WORLD, "b") == [2200.0, 2210.0, 2220.0, None]


def test_seeds_are_read_in_their_order() -> None:
    found = results({"a": [1.0, 2.0]}, {"a": [3.0, 4.0]})
    turned = Results(found.cells.iloc[::-1])
    assert evidence.returns_of(turned, WORLD, "a", "final").tolist() == [1.0, 2.0]
    assert evidence.returns_of(turned, WORLD, "a", "average").tolist() == [3.0, 4.0]


def test_solved_is_near_the_optimum_and_far_from_the_random_policy() -> None:
    for world, level in SOLVED.items():
        if not world.startswith("atari/"):  # there it shows learning
            assert 0.96 < reference_of(world).normalized(level) < 1.0


HIGH, LOW = [2.0, 2.1, 2.2, 2.3, 2.4], [1.0, 1.1, 1.2, 1.3, 1.4]


@pytest.mark.parametrize(
    ("final", "average", "faster", "better"),
    [
        ((HIGH, LOW), (HIGH, LOW), "✓ yes", "✓ yes"),
        ((LOW, HIGH), (HIGH, LOW), "✓ yes", "~ final: the reverse; average: yes"),
        ((HIGH, LOW), (LOW, HIGH), "✗ the reverse", "~ final: yes; average: the reverse"),
        ((LOW, LOW), (LOW, LOW), "✗ no", "✗ no"),
        ((HIGH, LOW), (LOW, LOW), "✗ no", "~ final: yes; average: no"),
    ],
)
def test_faster_is_about_averages_and_better_about_both(
    final: tuple[list[float], list[float]], average: tuple[list[float], list[float]], faster: str, better: str
) -> None:
    tables = ({"a": returns[0], "b": returns[1]} for returns in (final, average))
    found = asked(results(*tables), "a", "b")
    verdicts = {check: " ".join(check(found)[1:]) for check in (claims.faster, claims.better, claims.more_stable)}
    assert verdicts[claims.faster] == faster
    assert verdicts[claims.better] == verdicts[claims.more_stable] == better


def test_slower_than_all_others_is_not_slower_than_one() -> None:
    averages = {"few": [3.0] * 5, "many": [2.0] * 5, "more": [2.5] * 5}
    found = results(averages)
    assert claims.slower(asked(found, "many", "few", "more")) == (
        "average return: many 2.00, few 3.00 (p = 0.0079), more 2.50 (p = 0.0079); many has a larger mean than 0 of 2 "
        "others",
        "✓",
        "yes",
    )
    assert claims.slower(asked(found, "more", "few", "many"))[1:] == ("✗", "the reverse")
    assert claims.slower(asked(found, "more", "few", "many")).words.endswith(
        "more has a larger mean than 1 of 2 others"
    )
    assert claims.slower(asked(found, "more", "few")).mark == "✓"
    tied = claims.slower(
        asked(results({"few": [2.0] * 5, "many": [2.0] * 5, "more": [1.0] * 5}), "many", "few", "more")
    )
    assert tied.words.endswith("many has a larger mean than 1 of 2 others")


def test_words_tell_the_numbers_behind_a_verdict() -> None:
    found = results({"sum": [3.0, 3.0], "end": [0.0, 3.0]}, best={"sum": [3.0, 3.0], "end": [3.0, 3.0]})
    returns = "Summed meta-loss 3.00, End meta-loss 1.50 (p = 1)"
    assert claims.more_stable(asked(found, "sum", "end")).words == (
        "seeds that get there: Summed meta-loss 2 of 2, End meta-loss 2 of 2; "
        "that end there: Summed meta-loss 2 of 2, End meta-loss 1 of 2; "
        f"final return: {returns}; average return: {returns}"
    )
    study = asked(results({"8": [3.0, 3.0], "2": [0.0, 0.5]}), "8", "2", experiment="questions")
    assert claims.others_fail(study) == (
        "seeds that end solved: d = 8 2 of 2, d = 2 0 of 2; final return: d = 8 3.00, d = 2 0.25 (p = 0.33)",
        "✓",
        "yes",
    )


def test_others_fail_counts_every_seed_of_all_others() -> None:
    found = results({"10": [3.0, 3.0], "1": [0.0, 0.0], "2": [0.0, 3.0]})
    assert claims.others_fail(asked(found, "10", "1", "2")).verdict == "in part"
    assert claims.others_fail(asked(found, "10", "1")).verdict == "yes"
    assert claims.others_fail(asked(found, "2", "1")).verdict == "in part"
    assert claims.others_fail(asked(found, "1", "10", "2")).verdict == "no"


def test_intervals_are_shown_from_ten_seeds_on() -> None:
    nine, ten = results({"a": [float(i) for i in range(9)]}), results({"a": [float(i) for i in range(10)]})
    assert evidence.interval(evidence.mean_of(nine, WORLD, "a", "final")) == "4.00"
    assert evidence.interval(evidence.mean_of(ten, WORLD, "a", "final")) == "4.50 [0.00, 9.00]"
    assert evidence.every_seed([1.0, 20.0]) == "1.00, 20.0"
    assert all(math.isnan(end) for end in evidence.shown(Estimate(4.0, 3.0, 5.0), 9)[1:])
    assert evidence.shown(Estimate(4.0, 3.0, 5.0), 10) == Estimate(4.0, 3.0, 5.0)
    assert evidence.every_seed([3.0, *range(9)]) == "0.00 to 8.00"


def test_numbers_have_three_digits_and_intervals_where_there_are_any() -> None:
    assert [evidence.number(x) for x in (2.345, -9.999, 10.0, -1234.56)] == ["2.35", "-10.00", "10.0", "-1,234.6"]
    assert evidence.interval(Estimate(1.0, 0.5, 10.5)) == "1.00 [0.50, 10.5]"
    assert evidence.interval(Estimate(1.0, math.nan, math.nan)) == "1.00"


def test_claims_are_about_settings_that_experiments_run() -> None:
    for claim in CLAIMS:
        for experiment in (EXPERIMENTS[name] for name in claim.experiments):
            run = (
                METHODS if experiment.chooses_with_trials else [setting.label for setting in experiment.settings(WORLD)]
            )
            assert set(claim.settings) <= set(run)


@pytest.mark.parametrize(
    ("text", "better"),
    [
        ("Random questions and reward prediction are notably worse", "discovered"),
        ("The main task trains an encoder faster", "a2c"),
        ("Unrolls of 1 and 2 updates fail, of 10 do not", "10"),
        ("25 updates are better than 10", "25"),
        ("25 updates are better than 50", "25"),
        ("Two questions fail, 8 do not", "8"),
        ("The summed meta-loss is more stable than the end meta-loss", "sum"),
    ],
)
def test_a_claim_holds_where_its_setting_is_the_best(text: str, better: str) -> None:
    for claim in (claim for claim in CLAIMS if claim.text == text):
        for winner in claim.settings:
            found = results({label: [3.0 if label == winner else 0.0] * 5 for label in claim.settings})
            marks = [row.mark for row in claim.rows({claim.experiments[0]: found}) if row.verdict != "not run"]
            assert (marks == ["✓"]) is (method_in(winner) == better)


def test_claims_of_figure_2_have_a_row_for_every_convention_of_rms_prop() -> None:
    labels = [setting.label for setting in EXPERIMENTS["rms-prop"].settings(WORLD)]
    found = results({label: [3.0] * 5 for label in labels})
    rows = [row for row in claims.claim_rows({"rms-prop": found}) if row.verdict != "not run"]
    protocols = [
        "low learning rate, PyTorch's RMSProp",
        "low learning rate, TensorFlow's RMSProp",
        "low learning rate, TensorFlow's RMSProp, losses as sums",
    ]
    assert [row.protocol for row in rows] == 3 * protocols
    assert len({row.claim for row in rows}) == 3
    assert all("Discovered GVFs 3.00" in row.words for row in rows[3:])


def test_128_questions_are_compared_with_all_others() -> None:
    (claim,) = (claim for claim in CLAIMS if claim.text.startswith("128 questions"))
    assert set(claim.settings[1:]) == {"2", "8", "32", "64"}
    for loser in claim.settings:
        found = results({label: [0.0 if label == loser else 3.0] * 5 for label in claim.settings})
        assert (claim.rows({"questions": found})[0].mark == "✓") is (loser == "128")


@pytest.mark.parametrize(
    ("seeds", "p", "mark", "verdict", "cell"),
    [
        (5, " (p = 0.0079)", "✓", "yes", "5 (p ≥ 0.0079)"),
        (4, " (p = 0.029)", "–", "not enough seeds", "4 (p ≥ 0.029)"),
        (2, " (p = 0.33)", "–", "not enough seeds", "2 (p ≥ 0.33)"),
        (1, "", "–", "not enough seeds", "1"),
    ],
)
def test_fewer_than_five_seeds_have_no_verdict(seeds: int, p: str, mark: str, verdict: str, cell: str) -> None:
    claim = Claim("one", "figure 1", ("gridworlds",), ("a", "b"), claims.better, worlds=())
    found = results({"a": [3.0] * seeds, "b": [0.0] * seeds})
    (row,) = claim.rows({"gridworlds": found})
    assert (row.mark, row.verdict, row.seeds) == (mark, verdict, cell)
    assert row.source == "figure 1"
    assert row.words == f"final return: a 3.00, b 0.00{p}; average return: a 3.00, b 0.00{p}"


def test_the_setting_with_the_fewest_seeds_decides() -> None:
    claim = Claim("one", "figure 1", ("gridworlds",), ("a", "b"), claims.better, worlds=())
    (row,) = claim.rows({"gridworlds": results({"a": [3.0] * 9, "b": [0.0] * 4})})
    assert (row.verdict, row.seeds) == ("not enough seeds", "4 (p ≥ 0.0028)")


def test_a_claim_has_a_row_for_each_protocol() -> None:
    claim = Claim("one", "figure 1", ("gridworlds", "paper"), ("a",), claims.suffices, worlds=())
    tables = {"paper": results({"a": [0.0] * 5}), "gridworlds": results({"a": [3.0] * 5})}
    assert [(row.protocol, row.mark) for row in claim.rows(tables)] == [("preset", "✓"), ("A, the paper's", "✗")]


@pytest.mark.parametrize(
    ("experiment", "world", "protocol"),
    [
        ("questions", "collect-objects", "A, the paper's"),
        ("unroll-length", "collect-objects", "A, the paper's"),
        ("meta-objective", "collect-objects", "A, the paper's"),
        ("questions", "collect-objects-small", "preset"),
        ("gridworlds", "collect-objects", "preset"),
    ],
)
def test_studies_have_the_protocol_that_chose_their_settings(experiment: str, world: str, protocol: str) -> None:
    found = results({"a": [3.0] * 5})
    names = ("cells", "curves", "summary")
    moved = dataclasses.replace(found, **{name: getattr(found, name).assign(world=world) for name in names})
    (row,) = Claim("one", "figure 1", (experiment,), ("a",), claims.suffices, worlds=()).rows({experiment: moved})
    assert row.protocol == protocol


def test_rows_name_each_world_and_what_was_not_run() -> None:
    one = Claim("one", "figure 1", ("gridworlds",), ("a",), claims.suffices)
    two = Claim("two", "figure 2", ("gridworlds",), ("a", "c"), claims.better, worlds=("puddle-world",))
    tables = {"gridworlds": results({"a": [3.0] * 5, "b": [0.0] * 5})}
    assert [(row.claim, row.source, row.world, row.protocol, row.verdict) for row in one.rows(tables)] == [
        ("one", "figure 1", "CollectObjectsSmall-v0", "preset", "yes"),
        ("one", "figure 1", "CollectObjects-v0", "", "not run"),
        ("one", "figure 1", "PuddleWorld-v0", "", "not run"),
    ]
    assert [(row.world, row.verdict) for row in two.rows(tables)] == [("PuddleWorld-v0", "not run")]
    assert [row.verdict for row in two.rows({})] == ["not run"]


def test_the_committed_page_has_these_verdicts() -> None:
    docs = Path(__file__).parents[2] / "docs"
    figures = {
        experiment for claim in CLAIMS for experiment in claim.experiments if (docs / "results" / experiment).is_dir()
    }
    page = (docs / "results.md").read_text(encoding="utf-8")
    rows = claims.claim_rows({experiment: Results.read(docs / "results" / experiment) for experiment in figures})
    assert len(rows) > len(CLAIMS)
    for row in rows:
        verdict = f"{row.mark} {row.verdict}" if row.mark == "–" else f"**{row.mark}**"
        where = f"{row.world}, {row.protocol}" if row.protocol else row.world
        assert f"| {where} | {verdict} | {row.words} | {row.seeds} |" in page
