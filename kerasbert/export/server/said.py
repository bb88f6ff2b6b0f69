"""What a server tells whoever runs it: on stderr, which may be closed or a full disk and is then no reason to stop."""

import contextlib
import sys
import traceback


def say(line: str) -> None:
    """Tell a line."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def fault(what: str, error: Exception) -> str:
    """What a caller is told of an error that is none of his; whoever runs the server is told where it happened."""
    say("".join(traceback.format_exception(error)).rstrip())
    return f"{what}: unexpected {type(error).__name__}: {' '.join(str(error).split())[:300]}"
