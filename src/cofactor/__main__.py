"""``python -m cofactor``: the command line."""

from cofactor.cli import main

if __name__ == "__main__":
    main()
