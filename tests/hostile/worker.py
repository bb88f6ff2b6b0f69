"""The process in which mutated files are opened: `python -m tests.hostile.worker [fork]`.

It reads [subject, path], one a line, and answers each with two lines: one when the subject's modules are imported, then
{"answer": ...}, {"error": ...}, {"traceback": ...} or, with `fork`, {"signal": ...} and {"hang": ...} of the child that
opened the file. Without `fork` it opens files itself and dies of them: what has started threads, such as TensorFlow, must
not be forked.
"""

import json
import math
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

from kerasbert.errors import InputError
from tests.hostile import subjects

SECONDS = 5  # of CPU time on a file, then it hangs
WALL = 60.0  # seconds, for what waits without computing; other tests may have the cores meanwhile
LONGEST = 5000  # characters of an error
MEMORY = 8 << 30  # bytes of address space of a child


def opened(subject: Callable[[str], Any], path: str) -> dict[str, Any]:
    """What comes of a file, as one json object."""
    try:
        answer = subject(path)
        text = json.dumps(answer)
        return {"nan": text[:200]} if _unreal(answer) else {"answer": answer}
    except InputError as error:
        lines, size = str(error).splitlines(), len(str(error))
        if len(lines) == 1 and size <= LONGEST:
            return {"error": lines[0]}
        return {"traceback": f"an error of {len(lines)} lines, {size} characters: {str(error)[:300]}"}
    except BaseException:
        return {"traceback": traceback.format_exc()[-1500:]}


def _unreal(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_unreal, value.values()))
    if isinstance(value, list):
        return any(map(_unreal, value))
    return isinstance(value, float) and not math.isfinite(value)


def forked(subject: Callable[[str], Any], path: str) -> dict[str, Any]:
    """The same in a child of its own."""
    source, sink = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))  # SIGXCPU
        with os.fdopen(sink, "w") as file:
            file.write(json.dumps(opened(subject, path)))
        os._exit(0)
    os.close(sink)
    content, late = b"", False
    with os.fdopen(source, "rb", buffering=0) as file:
        while not late:
            late = not select.select([file], [], [], WALL)[0]
            chunk = b"" if late else file.read(1 << 16)
            if not chunk:
                break
            content += chunk
    if late:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if late or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return {"hang": f"more than {WALL if late else SECONDS} s"}
    if status:
        return {"signal": f"status {os.waitstatus_to_exitcode(status)}"}
    return json.loads(content)


def main() -> None:
    """Answer until the standard input ends."""
    fork = "fork" in sys.argv[1:]
    replies = os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)  # what C libraries print must not come between
    os.dup2(nothing, 2)
    for line in sys.stdin:
        name, path = json.loads(line)
        subjects.prepare(name)
        print(file=replies, flush=True)
        subject = getattr(subjects, name)
        print(json.dumps(forked(subject, path) if fork else opened(subject, path)), file=replies, flush=True)


if __name__ == "__main__":
    main()
