"""Install one ipykernel release into a folder: `kernel_folder.py 6.29 build/kernels/6.29`.

With that folder first on PYTHONPATH, Jupyter and the kernels it starts use that release.
"""

import subprocess
import sys
from pathlib import Path


def main(version: str, folder: Path) -> None:
    """Install the newest ipykernel `version`.* into `folder`, unless it is there."""
    if list(folder.glob(f"ipykernel-{version}.*")):
        return
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder)]
    subprocess.run([*pip, f"ipykernel=={version}.*"], check=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
