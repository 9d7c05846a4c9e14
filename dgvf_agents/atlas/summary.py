"""The lead paragraph of a page: what its numbers say, in words."""

from __future__ import annotations

import numpy as np

from dgvf_agents.atlas.captions import NAMED
from dgvf_agents.atlas.metrics import Principal
from dgvf_agents.atlas.report import Questions, RunReport


def lead(report: RunReport) -> str:
    """What an agent asks, how much of it has a name, and what the main task relies on."""
    questions, wording = report.asked(), report.domain.wording
    principal = questions.principal
    count, kinds = len(questions.captions), len(questions.ranking.kinds)
    sentences = [f"This agent asks {_number(count, 'question')} of {_number(kinds, 'kind')}."]
    if not len(principal.shares):
        return f"{sentences[0]} Their cumulants are the same {wording.everywhere}: it asks nothing."
    sentences.append(_common(report.history[-1].numbers["effective_questions"], principal))
    sentences.append(_names(questions))
    sentences.append(_reliance(report, questions))
    return " ".join(sentences)


def _common(effective: float | None, principal: Principal) -> str:
    first, total, count = principal.shares[0], principal.shares.sum(), len(principal.shares)
    rest = f", and the first {count} hold {total:.0%}" if count > 1 else ""
    return (
        f"They vary as {effective:.1f} independent ones would: one principal question holds {first:.0%} of the variance"
        f"{rest}."
    )


def _names(questions: Questions) -> str:
    named = [i for i in questions.ranking.kinds_first if questions.captions[i].named]
    if not named:
        return f"None of them has a name: landmarks explain less than {NAMED:.0%} of each."
    every = len(named) == len(questions.captions) > 1
    have = "All of them have a name" if every else f"{len(named)} of them {'has' if len(named) == 1 else 'have'} a name"
    first = f"The first of these is question {named[0]}, “{questions.captions[named[0]].headline}”"
    return f"{have}: landmarks explain at least {NAMED:.0%} of how each varies. {first}"


def _reliance(report: RunReport, questions: Questions) -> str:
    lost = questions.reliance.return_lost
    if lost is not None and report.exact_return is not None:
        i = int(lost.argmax())
        if lost[i] >= 0.005:
            left = report.exact_return - lost[i]
            return (
                f"The task relies most on question {i}: without its answer the agent's expected return falls from "
                f"{report.exact_return:.2f} to {left:.2f}."
            )
        return f"Erasing any one answer leaves the agent's expected return of {report.exact_return:.2f} as it is."
    i = int(np.argmax(questions.reliance.policy))
    return (
        f"The policy relies most on question {i}: without its answer the probabilities of actions change by "
        f"{questions.reliance.policy[i]:.2g} nats (mean Kullback-Leibler divergence)."
    )


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
