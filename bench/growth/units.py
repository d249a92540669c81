"""How costs grow with the number of tasks, and with the number of running services."""

import statistics
import time
from contextlib import closing

from bench.client import Client, Failed
from bench.daemon import Daemon, toml
from bench.growth.series import CONSTANT, LINEAR, Series, median_ms
from bench.lifecycle.lifetime import SLEEP, Fifo, cpu_ns, pss_mb

_TASKS = (10, 100, 1_000, 10_000)
_SERVICES = (10, 100, 500, 2_000)
_TIMES = 20
_SPAN_S = 10.0
_PATIENCE_S = 120.0


def tasks(quick: bool) -> list[Series]:
    """Measure with up to 10,000 tasks."""
    figures = {
        "start": Series("start of the daemon, processor time", "{:.2f} s", LINEAR),
        "idle": Series("idle, processor time", "{:.2f} %", LINEAR),
        "list": Series("list of all tasks", "{:.1f} ms", LINEAR),
        "one": Series("one task", "{:.2f} ms", CONSTANT),
        "trigger": Series("trigger, until the run is stored", "{:.2f} ms", CONSTANT),
        "reload": Series("reload with one changed task", "{:.0f} ms", LINEAR),
        "memory": Series("memory of all processes", "{:.0f} MB", LINEAR),
    }
    for amount in _TASKS[: 2 if quick else None]:
        for name, value in _with_tasks(amount, quick=quick).items():
            figures[name].values[amount] = value
    return list(figures.values())


def _with_tasks(amount: int, *, quick: bool) -> dict[str, float]:
    lines = [f"[tasks.t{n}]\nrun = 'true'\ncron = '{n % 60} {n // 60 % 24} 1 1 *'\n" for n in range(amount)]
    with Daemon("".join(lines)) as daemon, closing(daemon.client()) as client:
        while len(client.get("/api/tasks")["items"]) < amount:  # all are stored
            time.sleep(0.01)
        return {
            "start": sum(cpu_ns(process) for process in daemon.processes()) / 1e9,
            "list": median_ms(lambda: client.get("/api/tasks"), _TIMES),
            "one": median_ms(lambda: client.get("/api/tasks/t1"), _TIMES),
            "trigger": median_ms(lambda: client.trigger("t1"), _TIMES),
            "reload": statistics.median(_reload(daemon, client, number) for number in range(5)),
            "idle": _idle(daemon, quick=quick),
            "memory": sum(pss_mb(process.pid) for process in daemon.processes()),
        }


def services(quick: bool) -> list[Series]:
    """Measure with up to 2,000 running services."""
    figures = {
        "start": Series("start, until all services run", "{:.2f} s", LINEAR),
        "idle": Series("idle, processor time", "{:.2f} %", LINEAR),
        "revive": Series("from a killed service to its next process", "{:.1f} ms", CONSTANT),
        "memory": Series("memory of the supervisor", "{:.1f} MB", LINEAR),
        "stop": Series("clean stop", "{:.2f} s", LINEAR),
    }
    for amount in _SERVICES[: 2 if quick else None]:
        for name, value in _with_services(amount, quick=quick).items():
            figures[name].values[amount] = value
    return list(figures.values())


def _with_services(amount: int, *, quick: bool) -> dict[str, float]:
    lines = [f"[services.s{n}]\nrun = {toml(SLEEP)}\n" for n in range(1, amount)]
    start_s = time.monotonic()
    with (
        closing(Fifo()) as fifo,
        Daemon(fifo.definition() + "".join(lines)) as daemon,
        closing(daemon.client()) as client,
    ):
        _wait(client, amount)
        ready_s = time.monotonic() - start_s
        time.sleep(1.0 if quick else 5.0)
        return {
            "start": ready_s,
            "idle": _idle(daemon, quick=quick),
            "memory": pss_mb(daemon.pid),
            "revive": statistics.median(fifo.kills(_TIMES, lambda: _wait(client, amount))) * 1000,
            "stop": daemon.stop(),
        }


def _idle(daemon: Daemon, *, quick: bool) -> float:
    """Return the processor time of the daemon in percent of a core."""
    before = {process.pid: cpu_ns(process) for process in daemon.processes()}
    start_s = time.monotonic()
    time.sleep(2.0 if quick else _SPAN_S)
    took_s = time.monotonic() - start_s
    spent_ns = sum(cpu_ns(process) - before.get(process.pid, 0) for process in daemon.processes())
    return spent_ns / 1e7 / took_s


def _reload(daemon: Daemon, client: Client, number: int) -> float:
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace("[tasks.t1]\n", f"[tasks.t1]\ndescription = 'change {number}'\n", 1))
    start_s = time.monotonic()
    client.send("POST", "/api/daemon/reload")
    status, body = client.answer()
    took_s = time.monotonic() - start_s
    daemon.config.write_text(text)
    if status != 200:
        raise Failed(f"reload: {status} {body!r}")
    return took_s * 1000


def _wait(client: Client, amount: int) -> None:
    """Wait until so many services run."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while (running := client.get("/api/runs?status=running&limit=1")["total"]) < amount:
        if time.monotonic() > deadline_s:
            raise Failed(f"{running} of {amount} services run")
        time.sleep(0.05)
