"""What the ranks of one run have said of their exchanges, step by step."""

from dataclasses import dataclass, field

from memlab.events import StepCommunication
from memlab.plan import Plan


@dataclass(eq=False)
class RankRecord:
    """Keeps the last optimizer step that every rank has told, and each rank's largest instant."""

    plan: Plan
    last_step: tuple[StepCommunication, ...] = ()
    """Of every rank, in their order; empty before all have told a step."""
    peaks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """Bytes by category (trace.CATEGORIES) at the largest instant so far, by rank."""
    _arriving: dict[int, dict[int, StepCommunication]] = field(default_factory=dict)

    def add(self, said: StepCommunication) -> None:
        """Take in what one rank exchanged in one step."""
        if said.peak_bytes > sum(self.peaks.get(said.rank, ())):
            self.peaks[said.rank] = said.peak_by_category
        told = self._arriving.setdefault(said.step, {})
        told[said.rank] = said
        if len(told) == self.plan.world_size:
            self.last_step = tuple(told[rank] for rank in sorted(told))
            self._arriving = {step: ranks for step, ranks in self._arriving.items() if step > said.step}

    @property
    def shares_weights(self) -> bool:
        """Whether each rank holds a share of the weights, which are gathered where they are used."""
        return self.plan.data_parallel == "fsdp2"

    @property
    def alike(self) -> bool | None:
        """Whether all ranks held equal weights after `last_step`; None where that is not known."""
        sums = {rank.checksum for rank in self.last_step}
        return None if None in sums or not sums else len(sums) == 1
