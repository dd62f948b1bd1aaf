"""The notebooks: what is committed is what the sources give, small, in the lesson's shape, solvable."""

import ast
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import notebooks  # noqa: E402 - tools are no package

LARGEST_BYTES = 100_000
LONGEST_CELL = 10
NAMES = notebooks.names()
ALL = [(name, form) for name in NAMES for form in notebooks.forms(name)]
LESSONS = [name for name in NAMES if notebooks.forms(name) == ["student", "solved"]]


def committed(name: str, form: str) -> NotebookNode:
    return nbformat.read(notebooks.place(name, form), as_version=4)


def check_outputs(name: str, form: str) -> list[str]:
    """Return what each check in the notebook said."""
    code = [cell for cell in committed(name, form).cells if cell.cell_type == "code"]
    return [
        cell.outputs[0].data["text/plain"]
        for cell in code
        if cell.source.splitlines()[-1].startswith("check(")
    ]


def test_the_lessons_are_found() -> None:
    assert "00_bench" in NAMES and "01_where_the_memory_goes" in LESSONS


@pytest.mark.parametrize(("name", "form"), ALL)
def test_what_is_committed_is_what_the_source_gives(name: str, form: str) -> None:
    def without_outputs(notebook: NotebookNode) -> list[dict[str, Any]]:
        kept = ("id", "cell_type", "source", "metadata")
        return [{key: cell[key] for key in kept} for cell in notebook.cells]

    assert without_outputs(committed(name, form)) == without_outputs(notebooks.build(name, form)), (
        f"notebooks/src/{name}.py changed: run `make notebooks`"
    )


@pytest.mark.parametrize(("name", "form"), ALL)
def test_a_notebook_on_disk_is_small_and_holds_nothing_of_its_machine(name: str, form: str) -> None:
    notebook = committed(name, form)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]

    assert notebooks.place(name, form).stat().st_size < LARGEST_BYTES
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert not [cell.id for cell in notebook.cells if "execution" in cell.metadata]
    assert {kind for output in outputs for kind in output.get("data", {})} <= set(notebooks.KEPT_MIME_TYPES)
    assert not [output for output in outputs if output.output_type == "error"]


@pytest.mark.parametrize(("name", "form"), ALL)
def test_code_cells_are_short_and_prose_comes_first(name: str, form: str) -> None:
    cells = notebooks.build(name, form).cells
    lengths = {
        cell.source[:60]: len([line for line in cell.source.splitlines() if line.strip()])
        for cell in cells
        if cell.cell_type == "code"
    }

    assert cells[0].cell_type == "markdown" and cells[0].source.startswith("# ")
    assert not {start: length for start, length in lengths.items() if length > LONGEST_CELL}


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_has_its_shape(name: str) -> None:
    cells = notebooks.build(name, "student").cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    exercises = len(check_outputs(name, "student"))

    for part in ("minutes**", "**Goal.**", "## Key points", "change me", "memlab.Bench("):
        assert part in prose + "\n".join(cell.source for cell in cells), part
    assert prose.count("<summary>Hint 1</summary>") == prose.count("<summary>Hint 2</summary>") == exercises
    assert any("predict(" in cell.source for cell in cells) and exercises >= 3
    assert prose.count("<summary>Solution</summary>") == exercises  # a guess has none: it is measured


@pytest.mark.parametrize("name", LESSONS)
def test_the_students_form_fails_its_checks_and_the_solved_form_passes_them(name: str) -> None:
    student, solved = check_outputs(name, "student"), check_outputs(name, "solved")

    assert len(student) == len(solved) > 0
    assert not [said for said in student if ": Right." in said]
    assert not [said for said in solved if ": Right." not in said]


@pytest.mark.parametrize("name", LESSONS)
def test_no_helper_is_defined_twice_in_a_notebook(name: str) -> None:
    code = [cell.source for cell in notebooks.build(name, "solved").cells if cell.cell_type == "code"]
    defined = [
        node.name for node in ast.walk(ast.parse("\n".join(code))) if isinstance(node, ast.FunctionDef)
    ]

    assert len(defined) == len(set(defined)), defined
