"""One rank of a run, started by torchrun for `memlab.engine.launch`: events out to a file, one JSON line each.

Light until `main` has said that it lives: a launcher that gives up must know whom to end.
"""

import json
import os
import select
import sys
import threading
import traceback
from pathlib import Path
from typing import TextIO

from memlab.engine.meeting import Meeting, write_whole

LOOKS_APART = 0.05
"""Seconds between two looks at the launcher and its commands."""


def main() -> None:
    """Train as one rank of the run in the folder that the command line names."""
    meeting = Meeting(Path(sys.argv[1]))
    rank = int(os.environ["RANK"])
    write_whole(meeting.pid_file(rank), str(os.getpid()))
    threading.Thread(target=_leave_with_launcher, daemon=True).start()
    with meeting.events_file(rank).open("w", encoding="utf-8", buffering=1) as out:
        status = _train(meeting, rank, out)
    os._exit(status)  # past torch's own way out, which may wait for ranks that are gone


def _train(meeting: Meeting, rank: int, out: TextIO) -> int:
    from memlab.engine.measure import measure_events
    from memlab.engine.shared_control import SharedControl
    from memlab.engine.worker import failure
    from memlab.events import Failed, to_json

    control = SharedControl()
    try:
        plan, workload = meeting.plan, meeting.workload()
        threading.Thread(target=_watch, args=(meeting, rank, control), daemon=True).start()
        for event in measure_events(plan, workload, control=control):
            print(to_json(event), file=out)
            if isinstance(event, Failed):
                return 1
    except BaseException as error:
        # Whatever a rank raises, sys.exit too, must reach the learner, as text alone.
        print(to_json(failure(error)), file=out)
        traceback.print_exc()
        return 1
    return 0


def _leave_with_launcher() -> None:
    # Standard input is the launcher's end of a pipe: it closes when the launcher is gone, however it went.
    if hasattr(select, "poll"):
        watched = select.poll()
        watched.register(0, 0)
        watched.poll()
    else:
        sys.stdin.read()
    os._exit(1)


def _watch(meeting: Meeting, rank: int, control: "SharedControl") -> None:  # noqa: F821
    """Heed the launcher's commands, and show it how far the main thread is."""
    heard, stop = "", threading.Event()
    with meeting.beat_file(rank).open("wb", buffering=0) as beats:
        while not stop.wait(LOOKS_APART):
            said = meeting.command()
            if said != heard:
                heard = said
                {"pause": control.pause, "resume": control.resume, "stop": control.stop}[said]()
            beat = json.dumps(control.beat()).encode().ljust(meeting.BEAT_BYTES)
            os.pwrite(beats.fileno(), beat[: meeting.BEAT_BYTES], 0)


if __name__ == "__main__":
    main()
