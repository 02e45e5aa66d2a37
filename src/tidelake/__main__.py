"""Run the command line as ``python -m tidelake``."""

from tidelake.cli.main import main

if __name__ == "__main__":
    main(prog_name="tidelake")
