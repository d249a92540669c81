"""Cost of sampling the resources of runs: one pass over all of them, and the scheduler with and without runs."""

import os
import subprocess
import time

import psutil

from bench.daemon import Daemon, title, toml
from bench.lifecycle.lifetime import cpu_ns, wait_running
from bench.measure import Row, between, quantile
from supervisor.host.process_usage import Processes, boot_ticks
from supervisor.host.run_usage import TotalUsage

_RUNS = 200
_INSTANCES = 20
"""Of each service."""
_SLEEP = ["/bin/sleep", "1000000"]


def sampling(quick: bool) -> list[Row]:
    """Measure 200 idle runs among all other processes of the host."""
    runs = 20 if quick else _RUNS
    return [_pass(runs, 3 if quick else 20), _scheduler(runs, 6.0 if quick else 30.0)]


def _pass(runs: int, rounds: int) -> Row:
    """Measure the processor time of a pass; the floor reads the two files of each process of the runs."""
    children = [subprocess.Popen(_SLEEP, start_new_session=True) for _ in range(runs)]
    try:
        processes = Processes(os.getpid())
        ids = [f"{number:026d}" for number in range(runs)]
        for run_id, child in zip(ids, children, strict=True):
            processes.add(run_id, child.pid, boot_ticks() + 1)
        wanted = frozenset(ids)
        ours, floor = [], []
        for number in range(rounds + 1):
            start_s = time.thread_time()
            found: dict[str, TotalUsage] = {}
            for _ in processes.sample(wanted, found):
                pass
            middle_s = time.thread_time()
            for child in children:
                for name in ("stat", "io"):
                    with open(f"/proc/{child.pid}/{name}", "rb", buffering=0) as file:
                        file.read(4096)
            if number:  # the first pass reads every process of the host
                ours.append((middle_s - start_s) * 1000)
                floor.append((time.thread_time() - middle_s) * 1000)
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()
    middle, least = quantile(ours, 0.5), quantile(floor, 0.5)
    return Row(
        f"sampling {runs} runs: a pass over /proc",
        f"{middle:.2f} ms",
        f"{least:.2f} ms",
        f"{middle / least:.1f} x",
        "",
        None,
        between(ours, "{:.2f} ms"),
    )


def _scheduler(runs: int, span_s: float) -> Row:
    """Measure the processor time of the scheduler, including storage; the floor has no runs."""
    service = f"run = {toml(_SLEEP)}\ninstances = {_INSTANCES}\nhealthy_after = '1s'\n"
    used = []
    for services in (runs // _INSTANCES, 0):
        with Daemon("".join(f"[services.s{number}]\n{service}" for number in range(services))) as daemon:
            wait_running(daemon, services)
            time.sleep(10.0)  # until they are healthy and the first passes are done
            (scheduler,) = [process for process in daemon.processes() if title(process) == "ringward scheduler"]
            used.append(_share(scheduler, span_s))
    return Row(
        f"sampling {runs} runs: the scheduler",
        f"{used[0]:.2f} %",
        f"{used[1]:.2f} %",
        f"{used[0] / used[1]:.1f} x",
        "",
        None,
        "of a core",
    )


def _share(process: psutil.Process, span_s: float) -> float:
    before, start_s = cpu_ns(process), time.monotonic()
    time.sleep(span_s)
    return (cpu_ns(process) - before) / 1e9 / (time.monotonic() - start_s) * 100
