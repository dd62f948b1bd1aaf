"""What waits for a slow reader: all results, and of the curves of each run the newest."""

from memlab.engine.coalesce import Mailbox
from memlab.events import Failed, StepMemory


def curve(step: int, total: int) -> StepMemory:
    """Return the memory of a step whose peak is `total` bytes."""
    return StepMemory(
        step=step,
        position=(0.0,),
        by_category=((total,),),
        spans=(),
        peak={"total": total},
        peak_position=0.0,
        allocated=total,
        reserved=total,
    )


def test_a_newer_curve_takes_the_place_of_one_that_waits_and_tells_its_peak() -> None:
    mailbox = Mailbox()
    for step, total in enumerate((10, 30, 20)):
        mailbox.put(curve(step, total))

    (kept,) = mailbox.take()

    assert (kept.step, kept.earlier_peaks) == (2, ((0, 10), (1, 30)))
    assert mailbox.take() == []


def test_peaks_survive_two_mailboxes() -> None:
    first, second = Mailbox(), Mailbox()
    for start in (0, 2):
        first.put(curve(start, start))
        first.put(curve(start + 1, start + 1))
        for event in first.take():
            second.put(event)

    (kept,) = second.take()

    assert (*kept.earlier_peaks, (kept.step, kept.peak["total"])) == ((0, 0), (1, 1), (2, 2), (3, 3))


def test_curves_of_two_runs_do_not_mix() -> None:
    mailbox = Mailbox()
    end = Failed(kind="error", message="It broke.")
    mailbox.put(curve(0, 10))
    mailbox.put(end)
    mailbox.put(curve(0, 20))

    assert mailbox.take() == [curve(0, 10), end, curve(0, 20)]
