"""Print the installed packages as constraints: exact versions, marked with the Python that each needs."""

import sys
from importlib.metadata import Distribution, distributions

from packaging.specifiers import SpecifierSet
from packaging.version import Version

OLDEST = (3, 10)
"""Oldest Python that memlab runs on."""
OURS_OR_INSTALLERS = {"memlab", "pip", "setuptools", "wheel"}
HEADER = """\
# Exact versions that the tests ran with; written by `make constraints`.
# A line with a marker names a release that older Pythons cannot install: there pip chooses.
"""


def main() -> None:
    """Print one line for each installed package, sorted."""
    lines = {line for package in distributions() if (line := constraint(package))}
    sys.stdout.write(HEADER + "".join(f"{line}\n" for line in sorted(lines, key=str.lower)))


def constraint(package: Distribution) -> str | None:
    """Return `name==version`, with a marker where the release needs a newer Python than ours."""
    name = package.metadata["Name"]
    if name.lower() in OURS_OR_INSTALLERS:
        return None
    # "2.13.0+cpu" is a build of 2.13.0 that only some indexes have.
    version = Version(package.version).public
    oldest = oldest_python(package.metadata.get("Requires-Python") or "")
    marker = f' ; python_version >= "{oldest[0]}.{oldest[1]}"' if oldest > OLDEST else ""
    return f"{name}=={version}{marker}"


def oldest_python(requires: str) -> tuple[int, int]:
    """Return the oldest Python 3, from ours on, that `requires` admits."""
    allowed = SpecifierSet(requires)
    # Micro version 99: ">=3.9.2" admits 3.9.
    minors = range(OLDEST[1], OLDEST[1] + 20)
    return next((3, minor) for minor in minors if allowed.contains(f"3.{minor}.99"))


if __name__ == "__main__":
    main()
