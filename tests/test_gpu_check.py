"""The GPU check: what it says without a GPU, and the page that it writes of a record."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[1] / "tools/gpu_check.py"


@pytest.fixture
def gpu_check():
    spec = importlib.util.spec_from_file_location("gpu_check", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_a_gpu_it_says_so_in_one_line_and_succeeds() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    result = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True)
    assert result.returncode == 0
    assert result.stdout.strip() == f"gpu-check: skipped, torch {torch.__version__} sees no CUDA device."


def test_it_loads_neither_widgets_nor_plotly() -> None:
    code = (
        f"import sys; sys.argv = ['gpu_check']; exec(open({str(PROGRAM)!r}).read().split('if __name__')[0], "
        f"{{'__file__': {str(PROGRAM)!r}, '__name__': 'gpu_check'}}); "
        "import memlab.engine.measure, memlab.engine.predict; "
        "print([name for name in ('plotly', 'ipywidgets', 'memlab.ui') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_page_shows_the_signed_difference_of_each_prediction(gpu_check) -> None:
    row = {"plan": "baseline", "peak": 1000, "peak_allocated": 1024, "peak_reserved": 2048}
    predicted = {"peak": 1000, "peak_allocated": 1029, "peak_reserved": 1024}
    page = "\n".join(gpu_check.predicted_page([{**row, "predicted": predicted}, {"plan": "left out"}]))
    assert "| baseline | 1,000 | +0.00 % | 1,029 | +0.49 % | 1,024 | -50.00 % |" in page
    assert "left out" not in page


def test_the_grid_s_plans_are_predicted_by_name_on_the_card(gpu_check, monkeypatch) -> None:
    plan = {"micro_batch_size": 1, "sequence_length": 8}
    monkeypatch.setattr(gpu_check, "GRID", {"small": plan})
    rows = gpu_check.predictions("NVIDIA H200")
    assert set(rows) == {"small"}
    assert 0 < rows["small"]["peak"] <= rows["small"]["peak_allocated"] <= rows["small"]["peak_reserved"]
