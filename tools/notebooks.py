"""Write the notebooks from notebooks/src/NAME.py: `tools/notebooks.py [NAME ...]`.

A source is a jupytext py:percent file. A part that the learner writes is marked in its cell:

    #| student
    answer = None  # your number, in bytes
    #| solution
    answer = 1024
    #| end

The student's form (notebooks/NAME.ipynb) keeps the first part and folds the second away below the
cell, except for a guess, which has no solution; the solved form (notebooks/solved/NAME.ipynb, where there is anything to solve) has it filled in.
Both are executed; what is kept of their outputs is small and equal on every machine.
"""

import hashlib
import os
import re
import sys
from pathlib import Path
from typing import Literal

import jupytext
import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_notebook

Form = Literal["student", "solved"]

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
PART = re.compile(r"^#\| student\n(?P<student>.*?)^#\| solution\n(?P<solution>.*?)^#\| end\n?", re.M | re.S)
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
KEPT_MIME_TYPES = ("text/plain", "text/html")
"""Pictures and widget views differ from run to run; the first run of a reader makes them."""


def names() -> list[str]:
    """Return the names of all notebooks."""
    return sorted(path.stem for path in (NOTEBOOKS / "src").glob("*.py"))


def forms(name: str) -> list[Form]:
    """Return the forms that the notebook has: a solved one only where there is something to solve."""
    return ["student", "solved"] if PART.search(source(name).read_text(encoding="utf-8")) else ["student"]


def source(name: str) -> Path:
    """Return the file that the notebook is written from."""
    return NOTEBOOKS / "src" / f"{name}.py"


def place(name: str, form: Form) -> Path:
    """Return the file that holds one form of the notebook."""
    return NOTEBOOKS / ("solved" if form == "solved" else "") / f"{name}.ipynb"


def build(name: str, form: Form) -> NotebookNode:
    """Return one form of the notebook, not executed."""
    cells = []
    for cell in jupytext.read(source(name), fmt="py:percent").cells:
        cells.extend(shaped(cell, form))
    notebook = new_notebook(cells=cells, metadata=METADATA)
    for number, cell in enumerate(notebook.cells):
        # The same text twice in one notebook still gets two ids.
        same = [other.source for other in notebook.cells[:number]].count(cell.source)
        digest = hashlib.sha256(f"{name} {cell.source} {same}".encode()).hexdigest()
        cell.id = digest[:12]
    return notebook


def shaped(cell: NotebookNode, form: Form) -> list[NotebookNode]:
    """Return a source's cell as the form has it; in the student's, with its folded solution below."""
    tags = cell.metadata.get("tags", [])
    cell.metadata = NotebookNode({"tags": tags} if tags else {})
    solutions = [match["solution"] for match in PART.finditer(f"{cell.source}\n")]
    part = "student" if form == "student" else "solution"
    cell.source = PART.sub(lambda match: match[part], f"{cell.source}\n").rstrip("\n")
    if form == "solved" or not solutions or "predict(" in cell.source:
        return [cell]  # a guess has no solution: its answer is measured below
    return [cell, new_markdown_cell(folded("".join(solutions)))]


def folded(solution: str) -> str:
    """Return Markdown that shows `solution` when it is opened."""
    return f"<details><summary>Solution</summary>\n\n```python\n{solution.rstrip()}\n```\n\n</details>"


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run the notebook in `folder` on the CPU and keep the outputs that every machine repeats."""
    from nbclient import NotebookClient

    os.environ["MEMLAB_DEVICE"] = "cpu"
    client = NotebookClient(
        notebook, timeout=120, record_timing=False, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    notebook.metadata = NotebookNode(METADATA)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            kept = [output for output in cell.outputs if repeatable(output, cell)]
            cell.outputs = joined(kept)


def repeatable(output: NotebookNode, cell: NotebookNode) -> bool:
    """Tell whether every machine repeats the output; strip it of what only this one knows."""
    if "data" in output:
        output.data = NotebookNode(
            {kind: output.data[kind] for kind in KEPT_MIME_TYPES if kind in output.data}
        )
        output.metadata = NotebookNode()
    return "nbval-ignore-output" not in cell.metadata.get("tags", [])


def joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Return the outputs with printed text in one piece: how it was cut was chance."""
    whole: list[NotebookNode] = []
    for output in outputs:
        if whole and output.output_type == "stream" and whole[-1].get("name") == output.name:
            whole[-1].text += output.text
        else:
            whole.append(output)
    return whole


def main(wanted: list[str]) -> None:
    """Write the named notebooks, or all."""
    for name in wanted or names():
        for form in forms(name):
            notebook, path = build(name, form), place(name, form)
            path.parent.mkdir(exist_ok=True)
            execute(notebook, path.parent)
            nbformat.write(notebook, path)
            print(f"{path.relative_to(NOTEBOOKS.parent)}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
