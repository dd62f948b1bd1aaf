"""The runs of one bench: which are kept, which are shown."""

from operator import attrgetter

from memlab.plan import Plan
from memlab.run import Run
from memlab.ui.records import Record, letter


class Ledger:
    """Keeps every finished run; shows the newest and the pinned ones."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._number = 0

    def begin(self, plan: Plan) -> Record:
        """Open the record of a new run; earlier runs that are not pinned lose their trace."""
        self.records = [record for record in self.records if record.run is not None]
        for record in self.records:
            if not record.pinned:
                record.forget_trace()
        record = Record(letter=letter(self._number), plan=plan)
        self._number += 1
        self.records.append(record)
        return record

    @property
    def runs(self) -> list[Run]:
        """The finished runs, the newest last."""
        return [record.run for record in self.records if record.run is not None]

    @property
    def shown(self) -> list[Record]:
        """The pinned runs and the newest, in the order in which they ran."""
        return [record for record in self.records if record.pinned or record is self.newest]

    @property
    def drawn(self) -> list[Record]:
        """What `shown` holds, the newest first: it is the solid line."""
        return [*self.records[-1:], *(record for record in self.records[:-1] if record.pinned)]

    @property
    def newest(self) -> Record | None:
        """The run that goes on, or the last one."""
        return self.records[-1] if self.records else None

    def find(self, name: str | None = None) -> Record:
        """Return the finished run with this letter or name, else the newest; raise where there is none."""
        finished = [record for record in self.records if record.run is not None]
        if not finished:
            raise ValueError("No run has finished yet: press Run first.")
        if name is None:
            return finished[-1]
        # A letter first: it is one run's alone, and a name may be any text, another run's letter included.
        for called in (attrgetter("letter"), attrgetter("name")):
            for record in finished:
                if called(record) == name:
                    return record
        raise ValueError(f"No run is called {name!r}; there are {', '.join(r.letter for r in finished)}.")

    def delete(self, record: Record) -> None:
        """Forget a run."""
        self.records.remove(record)
