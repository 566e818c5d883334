"""`python -m kimi`."""

import sys

from kimi.interfaces.main import main

if __name__ == "__main__":
    sys.exit(main())
