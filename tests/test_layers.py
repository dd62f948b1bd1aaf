"""The house stands: imports point downwards, the light part is light, files and functions stay short."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "memlab"
LAYERS = (
    {
        "units",
        "catalog",
        "plan",
        "plan_rules",
        "plan_ranks",
        "trace",
        "run",
        "events",
        "logits",
        "late_bar",
        "interrupts",
    },
    {"device", "optimizers", "models", "data", "cross_entropy"},
    {"workload"},
    {"training", "memory"},
    {"predicting"},
    {"engine"},
    {"planner"},
    {"course", "cli"},
    {"ui", "__main__"},
)
"""docs/architecture.md, from the bottom up. `training` and `memory` do not know each other."""
LAYER = {name: number for number, names in enumerate(LAYERS) for name in names}
LIGHT = ("memlab", "memlab.engine.client", "memlab.course", "memlab.ui", "memlab.cli")
"""Import these (and every module of the packages course and ui) and torch stays unloaded."""
LONGEST_FILE, LONGEST_FUNCTION = 350, 60
FILES = sorted(PACKAGE.rglob("*.py"))


def part(path: Path) -> str:
    """Return the part of the house that a file belongs to: its folder, or its own name."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the parts of memlab that a file imports, and the line, at whatever depth."""
    for node in running_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path.name}:{node.lineno} imports relatively; write memlab.…"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("memlab.") and name.split(".")[1] in LAYER:
                yield name.split(".")[1], node.lineno


def running_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every node but those under `if TYPE_CHECKING`, which never run."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from running_nodes(node)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(path: Path) -> None:
    if path == PACKAGE / "__init__.py":
        return  # the table of contents names every layer
    mine = part(path)
    assert mine in LAYER, f"memlab/{mine} has no layer: add it here and in docs/architecture.md"

    upwards = [
        f"{path.name}:{line} imports memlab.{name}"
        for name, line in imported_parts(path)
        if LAYER[name] > LAYER[mine] or (LAYER[name] == LAYER[mine] > 2 and name != mine)
    ]

    assert not upwards, upwards


def light_modules() -> list[str]:
    """Return the modules that a notebook's kernel loads."""
    packages = [PACKAGE / "course", PACKAGE / "ui"]
    files = [path for package in packages for path in package.rglob("*.py") if path.stem != "__init__"]
    inside = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in files]
    return [*LIGHT, *sorted(inside)]


def test_the_kernels_part_loads_no_torch_and_prints_nothing() -> None:
    loaded = "[name for name in ('torch', 'tensorflow', 'jax') if name in sys.modules]"
    program = f"import sys, {', '.join(light_modules())}; assert not (heavy := {loaded}), heavy"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_names_of_the_package_exist() -> None:
    import memlab

    missing = [name for name in memlab.__all__ if getattr(memlab, name, None) is None]

    assert not missing, missing
    with pytest.raises(AttributeError, match="module 'memlab' has no attribute 'nothing'"):
        memlab.nothing  # noqa: B018


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_and_functions_stay_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lengths = {
        f"{path.name}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }

    assert text.count("\n") <= LONGEST_FILE
    assert not {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION}
