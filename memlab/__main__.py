"""`python -m memlab` is the command `memlab`."""

import sys

from memlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
