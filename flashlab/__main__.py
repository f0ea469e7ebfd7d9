"""What `make lab` and `make test` call: `python3 -m flashlab lab` and `... test`. Parses on Python 3.8."""

import sys

USAGE = """usage: python3 -m flashlab lab [arguments for JupyterLab, e.g. --no-browser --port=9000]
       python3 -m flashlab test
       python3 -m flashlab doctor | ...   (what the flashlab command can do, inside .venv)
"""


def main(argv):
    """Run one command; return the exit status. Whatever is wrong with the machine comes as one sentence."""
    command = argv[0] if argv else ""
    if command not in ("lab", "test"):
        if command in ("", "-h", "--help"):
            print(USAGE, end="")
            return 0 if command else 2
        if sys.version_info < (3, 11):
            print("flashlab: set it up first: make lab (or python3 -m flashlab lab)", file=sys.stderr)
            return 2
        from .cli import main as cli

        return cli(argv)
    try:
        from . import commands
        from .pip_run import SetupError
    except SyntaxError:  # Python 2 to 3.5
        print(
            "flashlab needs Python 3.11 to 3.14, and this is Python " + sys.version.split()[0],
            file=sys.stderr,
        )
        return 1
    try:
        return commands.lab(argv[1:]) if command == "lab" else commands.test(argv[1:])
    except SetupError as error:
        print(error, file=sys.stderr)
    except OSError as error:
        print("flashlab: {}: {}".format(error.strerror or error, error.filename or "?"), file=sys.stderr)
    except KeyboardInterrupt:
        print("\nflashlab: stopped.", file=sys.stderr)
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
