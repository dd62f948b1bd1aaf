"""Random numbers of a run, kept apart from those of the program around it."""

import numpy as np
import torch


class RandomState:
    """Torch's generators of the host and of `device`, as the run left them; active inside `with`.

    On the way out the program's own states are back, untouched.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._devices = [torch.device("cpu"), *([device] if device.type == "cuda" else [])]
        self._seed = seed
        self._states = [_seeded(place, seed % 2**63) for place in self._devices]  # torch takes no larger one

    def begin_rank(self, rank: int) -> None:
        """Give ranks other than the first random numbers of their own: masks of dropout must differ."""
        if rank:
            seeds = np.random.SeedSequence((self._seed, rank)).generate_state(1, np.uint64)
            self._states = [_seeded(place, int(seeds[0]) % 2**63) for place in self._devices]

    def __enter__(self) -> None:
        self._exchange()

    def __exit__(self, *error: object) -> None:
        self._exchange()

    def _exchange(self) -> None:
        found = [_state(place) for place in self._devices]
        for place, state in zip(self._devices, self._states, strict=True):
            _set_state(place, state)
        self._states = found


def _seeded(device: torch.device, seed: int) -> torch.Tensor:
    return torch.Generator(device).manual_seed(seed).get_state()


def _state(device: torch.device) -> torch.Tensor:
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)


def _set_state(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.cuda.set_rng_state(state, device)
