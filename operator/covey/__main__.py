"""``python -m covey``: the command line."""

from covey.cli.main import main

if __name__ == "__main__":
    main()
