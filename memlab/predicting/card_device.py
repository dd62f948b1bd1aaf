"""A device of our own, so that what lies on the card and what lies on the host stay apart without a GPU.

torch leaves one device type to others ("privateuseone"). A process can name it once; importing memlab
does not, only the first recording does.
"""

from types import ModuleType

import torch
from torch.utils import backend_registration

from memlab.predicting.device_name import NAME
from memlab.predicting.refusals import RecordingError
from memlab.predicting.rules import autocast, composites

_libraries: list[torch.library.Library] = []
"""What they registered stands as long as they live."""


def card_device() -> torch.device:
    """Return the device whose tensors have no data; the first call of a process registers it with torch."""
    taken = torch._C._get_privateuse1_backend_name()
    if taken != NAME:
        if taken != "privateuseone":
            raise RecordingError(
                f"this process has given torch's spare device type to {taken!r}, and a recording needs it; "
                "record in a process that does not load that backend."
            )
        # Private until torch has a public way (2.13).
        backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_module())
        _register_rules()
    return torch.device(NAME)


def _register_rules() -> None:
    library, all_others = (torch.library.Library(name, "IMPL") for name in ("aten", "_"))
    _libraries.extend((library, all_others))
    composites.register(library)
    autocast.register(library, all_others)


def _module() -> ModuleType:
    """Return what torch asks about a device: there is one, and no program should find it by itself."""
    module = ModuleType(f"torch.{NAME}")
    module.is_initialized = lambda: True
    module.is_available = lambda: False
    module.current_device = lambda: 0
    module.device_count = lambda: 1
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda seed: None
    # FSDP2 orders its exchanges by streams: here, as on the CPU, there is nothing to wait for.
    for name in ("Stream", "Event", "stream", "current_stream"):
        setattr(module, name, getattr(torch.cpu, name))
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    return module
