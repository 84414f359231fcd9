"""`python -m fastrender`."""

import sys

from fastrender.cli import main

if __name__ == "__main__":
    sys.exit(main())
