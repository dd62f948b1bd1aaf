"""A workload that goes wrong on one rank: what happens to the others must not depend on luck."""

import os
import signal
import sys
import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from memlab.plan import Plan
from memlab.workload import Workload


class Faulty(Workload):
    """Raises, exits, dies, stops or loops in the forward of one rank's second step; `slow` takes its time in each."""

    def __init__(self, fault: str, rank: int = 1) -> None:
        self.fault, self.rank = fault, rank
        self.forwards = 0

    def __len__(self) -> int:
        return 64

    def build_model(self, plan: Plan) -> nn.Module:
        return nn.Linear(4, 4)

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        return (torch.ones(len(indices), 4), torch.zeros(len(indices), dtype=torch.int64))

    def loss_sum(self, model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
        self.forwards += 1
        if self.fault == "slow":
            time.sleep(0.05)
        elif self.forwards == 2 and int(os.environ["RANK"]) == self.rank:
            self.go_wrong()
        return super().loss_sum(model, batch)

    def go_wrong(self) -> None:
        match self.fault:
            case "raises":
                raise KeyError("label 7")
            case "exits":
                sys.exit("no data")
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "loops":
                while True:
                    time.sleep(0.01)
