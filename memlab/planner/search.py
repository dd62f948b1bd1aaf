"""Search the plans that fit a card, and rank them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memlab.memory.cards import Card
from memlab.memory.cards import card as card_named
from memlab.plan import Plan, PlanError
from memlab.planner.advice import nothing_fits
from memlab.planner.candidates import Combination, check_fixed, combinations
from memlab.planner.fitting import Fitting, Progress
from memlab.planner.proposal import Fit, Proposal
from memlab.planner.work import work_of
from memlab.workload import workload_for


def feasible_plans(
    model: str,
    card: str | Card,
    global_batch_size: int,
    world_size: int = 1,
    *,
    largest_only: bool = False,
    progress: Progress | None = None,
    **fixed: Any,
) -> list[Proposal]:
    """Return every plan that fits `card` and makes `global_batch_size`, the fastest by rank first.

    `fixed` are fields of the Plan that are not to be varied; open are micro-batch size (K follows),
    precision, activation checkpointing, and whether the optimizer is fused. With `largest_only` each
    combination is given with its largest micro-batch alone, for which bisection needs few predictions. A
    combination whose weights, gradients and optimizer state alone are too large is left out without any.
    An error that `progress` raises ends the search. Equal arguments give equal lists, so ranks that ask
    for themselves agree. Raises NothingFits, which names what comes nearest; PlanError and CardError.
    """
    target = card_named(card)
    fitting = Fitting(target)
    open_plans = _open_plans(model, target, global_batch_size, world_size, fixed)
    fitted = []
    for done, combination in enumerate(open_plans):
        report = _reporter(progress, done, len(open_plans))
        found = _fitted(combination, fitting, report, largest_only=largest_only)
        if found:  # counted here, where `progress` can show it and end it
            report(found[0].fit.plan)
            work_of(found[0].fit.plan, target)
        fitted += found
    if not fitted:
        raise nothing_fits(open_plans, fitting)
    return _ranked(fitted, target)


def _open_plans(
    model: str, card: Card, global_batch_size: int, world_size: int, fixed: dict[str, Any]
) -> list[Combination]:
    check_fixed(card, fixed)
    if model == "custom":
        raise PlanError(
            "model='custom' cannot be planned, for it has no name to build it by; compare predict(plan, card, workload) "
            "for some micro-batch sizes."
        )
    known = {name: value for name, value in fixed.items() if name in ("data", "sequence_length")}
    samples = len(workload_for(Plan(model=model, **known)))
    return combinations(model, card, global_batch_size, world_size, fixed, samples)


def _reporter(progress: Progress | None, done: int, total: int) -> Callable[[Plan], None]:
    def report(plan: Plan) -> None:
        if progress is not None:
            progress(done, total, plan)

    return report


@dataclass(frozen=True)
class _Fitted:
    fit: Fit
    largest: bool


def _fitted(
    combination: Combination, fitting: Fitting, report: Callable[[Plan], None], *, largest_only: bool
) -> list[_Fitted]:
    """Return the plans of one combination that fit, the largest micro-batch first."""
    plans = list(combination.values())

    def fits(place: int) -> bool:
        return fitting.may_fit(plans[place]) and fitting.fits(fitting.fit(plans[place], report))

    # Where all that fit are asked for, going up needs one prediction that fails; bisection needs more.
    largest = largest_that(fits, len(plans)) if largest_only else last_in_a_row(fits, len(plans))
    if largest is None:
        return []
    places = (largest,) if largest_only else range(largest, -1, -1)
    return [_Fitted(fitting.fit(plans[place]), place == largest) for place in places]


def last_in_a_row(holds: Callable[[int], bool], count: int) -> int | None:
    """Return the last of the numbers from 0 up that `holds` without a gap; None where 0 does not."""
    failing = next((number for number in range(count) if not holds(number)), count)
    return failing - 1 if failing else None


def largest_that(holds: Callable[[int], bool], count: int) -> int | None:
    """Return the largest number below `count` that `holds`, by bisection; None where 0 does not.

    Where a number holds, all smaller ones are taken to hold too.
    """
    if not count or not holds(0):
        return None
    holding, failing = 0, count
    while failing - holding > 1:
        middle = (holding + failing) // 2
        holding, failing = (middle, failing) if holds(middle) else (holding, middle)
    return holding


def _ranked(fitted: list[_Fitted], card: Card) -> list[Proposal]:
    seconds = [_seconds_per_sample(it.fit.plan, card) for it in fitted]
    best = min(seconds)
    proposals = [_proposal(it, card, best / each) for it, each in zip(fitted, seconds, strict=True)]
    # By name at last, so that equals have one order everywhere.
    return sorted(proposals, key=lambda it: (-it.relative_speed, -it.headroom_bytes, it.plan.to_json()))


def _seconds_per_sample(plan: Plan, card: Card) -> float:
    steps = plan.gradient_accumulation_steps
    return work_of(plan, card).seconds(plan.micro_batch_size, steps, card) / (plan.micro_batch_size * steps)


def _proposal(fitted: _Fitted, card: Card, relative_speed: float) -> Proposal:
    plan = fitted.fit.plan
    work, steps = work_of(plan, card), plan.gradient_accumulation_steps
    arithmetic = work.arithmetic_seconds(plan.micro_batch_size, steps, card)
    return Proposal(
        **vars(fitted.fit),
        relative_speed=relative_speed,
        utilisation=arithmetic / work.seconds(plan.micro_batch_size, steps, card),
        flops_per_sample=work.flops(plan.micro_batch_size, steps) / (plan.micro_batch_size * steps),
        largest=fitted.largest,
    )
