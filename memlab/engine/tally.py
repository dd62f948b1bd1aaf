"""What a run leaves behind, gathered step by step."""

import os
from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from memlab.events import Notice, StepCommunication, StepFinished
from memlab.memory.meter import Meter
from memlab.plan import Plan
from memlab.run import Rank, Run


@dataclass(kw_only=True)
class Tally:
    """Losses, speeds, notices and the allocator's peaks of the steps so far."""

    losses: list[float] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    exchanged: Counter[str] = field(default_factory=Counter)
    checksum: int | None = None
    peak_allocated: int = 0
    peak_reserved: int = 0

    def notice(self, event: Notice) -> None:
        """Note a warning of the run."""
        self.notices.append(event.message)

    def communication(self, event: StepCommunication) -> None:
        """Note what this rank exchanged in one step."""
        self.exchanged["gradient_exchanges"] += sum(event.calls)
        self.exchanged["gradient_bytes"] += sum(event.bytes)
        self.exchanged["weight_gathers"] += sum(event.gathers)
        self.exchanged["weight_bytes"] += sum(event.gathered_bytes)
        self.exchanged["microseconds"] += round(event.seconds * 1e6)
        self.checksum = event.checksum

    def step(self, event: StepFinished, meter: Meter) -> None:
        """Note one step, and the allocator's peaks in it."""
        self.losses.append(event.loss)
        self.speeds.append(event.samples / event.seconds)
        if event.skipped:
            self.skipped.append(event.step)
        self.peak_allocated = max(self.peak_allocated, meter.allocated)
        self.peak_reserved = max(self.peak_reserved, meter.reserved)

    def run(self, plan: Plan, meter: Meter, environment: dict[str, str], device_bytes: dict[str, int]) -> Run:
        """Return the Run of all that was noted and metered; a step that was broken off counts for its memory."""
        return Run(
            plan=plan,
            source="measured",
            losses=tuple(self.losses),
            peak=meter.peak,
            peak_allocated=self.peak_allocated,
            peak_reserved=self.peak_reserved,
            fits=True,
            peaks_by_phase=meter.peaks_by_phase,
            step_peaks=meter.step_peaks[: len(self.losses)],
            environment=environment,
            ranks=(
                Rank(
                    pid=os.getpid(),
                    peak=meter.peak,
                    communication=dict(self.exchanged),
                    weights_checksum=self.checksum,
                ),
            ),
            trace=meter.trace,
            skipped_steps=tuple(self.skipped),
            notices=tuple(self.notices),
            samples_per_second=median(self.speeds[1:] or self.speeds or [0.0]),
            device_bytes=device_bytes,
        )
