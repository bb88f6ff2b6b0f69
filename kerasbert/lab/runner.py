"""Runs a plan: what all share first, then seeds in processes of their own; a line of results.jsonl for every arm and seed."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from kerasbert import children
from kerasbert.data.processes import available
from kerasbert.errors import InputError
from kerasbert.lab import page, results
from kerasbert.lab.plan import LINES, MARKER, TEXT, Plan, finished
from kerasbert.progress import duration
from kerasbert.storage import files
from kerasbert.storage.json_view import Json, JsonMap

WORK = "import sys; from kerasbert import children; children.end_with_parent()\n"
WORK += "from kerasbert.cli.parser import failure; from kerasbert.lab.work import main\n"
WORK += "try: main(*sys.argv[1:])\n"
WORK += "except Exception as error: line, status = failure(error); sys.exit(f'error: {line}')"


def run(plan: Plan) -> Json:
    """Run what is missing and write results.json and lab.html.

    Returns:
        what results.json holds (`results.summary`).

    Raises:
        InputError: a process refused its settings or its files; the finished lines are kept.
    """
    with (plan.folder / MARKER).open("rb") as marker:
        files.lock(marker, f"another process runs the lab in {plan.folder}")
        with files.kept(plan.folder):
            return _run(plan)


def _run(plan: Plan) -> Json:
    """`run`, alone in its folder."""
    for line in plan.told():
        print(line, file=sys.stderr, flush=True)
    lines = finished(plan.folder)
    todo = list(_todo(plan, lines))
    if todo:
        print("text, vocabulary and records, once for all arms", file=sys.stderr, flush=True)
        for line in _process(plan, "-", {}, available()):
            raise InputError(f"the lab's preparation printed {line[:80]!r}")
        _all(plan, todo, lines)
    order = list(plan.experiment.arms)
    lines.sort(key=lambda line: (order.index(line["arm"]), line["seed"]))
    found = results.summary(plan.experiment, lines, plan.seeds, plan.factor, plan.text)
    files.write_json(plan.folder / "results.json", found)
    files.write_atomic(plan.folder / "lab.html", page.page(found))
    return found


def _todo(plan: Plan, lines: Sequence[Mapping[str, object]]) -> Iterator[tuple[int, Json]]:
    """(seed, what its process is asked) of all that has no line yet."""
    done = {(line["arm"], line["seed"]) for line in lines}
    for seed, arms in plan.groups():
        missing = [arm for arm in arms if (arm, seed) not in done]
        if missing:
            yield seed, {"arms": missing, "group": arms[0], "figure": dict(plan.experiment.figure)}


def _all(plan: Plan, todo: Sequence[tuple[int, Json]], lines: list[Json]) -> None:
    """Run processes side by side; every finished line is kept at once."""
    lock, began, total = threading.Lock(), time.monotonic(), len(plan.experiment.arms) * plan.seeds
    before = len(lines)
    running: list[subprocess.Popen] = []
    stopped = threading.Event()

    def one(seed: int, asked: Mapping[str, object]) -> None:
        for line in _process(plan, str(seed), asked, max(1, available() // plan.processes), running, stopped):
            with lock:
                lines.append(json.loads(line))
                files.write_atomic(plan.folder / LINES, "".join(json.dumps(each) + "\n" for each in lines))
                left = (time.monotonic() - began) / (len(lines) - before) * (total - len(lines))
                told = f"{lines[-1]['arm']}, seed {seed}: {_number(lines[-1].get('figure'))}"
                print(f"{len(lines)} of {total}, {duration(left)} left: {told}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(plan.processes) as pool:
        futures = [pool.submit(one, seed, asked) for seed, asked in todo]
        try:
            for future in futures:
                future.result()
        finally:  # an error or Ctrl-C ends the others at once: files appear whole, and what has no line yet runs again
            stopped.set()
            for process in running:
                process.kill()
            pool.shutdown(cancel_futures=True)


def _process(
    plan: Plan,
    seed: str,
    asked: JsonMap,
    threads: int,
    running: list[subprocess.Popen] | None = None,
    stopped: threading.Event | None = None,
) -> Iterator[str]:
    """The lines of json that a process prints.

    Raises:
        InputError: what it says at its end.
    """
    if stopped is not None and stopped.is_set():
        return
    folder = plan.folder.resolve()
    arguments = (str(folder), seed, json.dumps(asked), str(folder / TEXT) if plan.text else "")
    several = {f"TF_NUM_{name}_THREADS": str(threads) for name in ("INTRAOP", "INTEROP")}
    process = subprocess.Popen(
        children.command(WORK, *arguments),
        env=children.environment(TF_CPP_MIN_LOG_LEVEL="3", OMP_NUM_THREADS=str(threads), **several),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    if running is not None:
        running.append(process)
    said: list[str] = []
    assert process.stdout is not None
    assert process.stderr is not None
    reader = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
    reader.start()
    with process:
        for line in process.stdout:
            if line.startswith('{"arm"'):
                yield line
        reader.join()
    if process.returncode and not (stopped is not None and stopped.is_set()):
        last = ([line for line in said if line.startswith("error: ")] or said or ["no message"])[-1]
        told = f"arm {', '.join(asked['arms'])}" if "arms" in asked else "preparation"
        raise InputError(f"{told}: {last.strip().removeprefix('error: ')}")


def _number(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.4f}"
