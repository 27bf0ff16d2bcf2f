"""`python -m ropewalk` is the program."""

import sys

from ropewalk._program import main

if __name__ == "__main__":
    sys.exit(main())
