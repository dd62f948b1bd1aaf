"""Random numbers of a run, kept apart from those of the program around it."""

import torch


class RandomState:
    """Torch's generators of the host and of `device`, as the run left them; active inside `with`.

    On the way out the program's own states are back, untouched.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self._devices = [torch.device("cpu"), *([device] if device.type == "cuda" else [])]
        seed %= 2**63  # torch takes no larger one
        self._states = [torch.Generator(place).manual_seed(seed).get_state() for place in self._devices]

    def __enter__(self) -> None:
        self._exchange()

    def __exit__(self, *error: object) -> None:
        self._exchange()

    def _exchange(self) -> None:
        found = [_state(place) for place in self._devices]
        for place, state in zip(self._devices, self._states, strict=True):
            _set_state(place, state)
        self._states = found


def _state(device: torch.device) -> torch.Tensor:
    return torch.get_rng_state() if device.type == "cpu" else torch.cuda.get_rng_state(device)


def _set_state(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.cuda.set_rng_state(state, device)
