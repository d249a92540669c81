"""An imported compose file, which the daemon runs with a real container engine."""

import subprocess
from pathlib import Path

import pytest

from tests.e2e.tasks.container_engine import IMAGE, container_engine
from tests.support.daemon import RINGWARD, Daemon
from tests.support.waiting import until

COMPOSE = f"""
name: shop
services:
  setup:
    image: {IMAGE}
    command: sh -c 'echo "it is ready" >/pages/index.html'
    volumes: ["./pages:/pages"]
  web:
    image: {IMAGE}
    command: ["sh", "-c", "echo serving $$MODE; trap 'exit 0' TERM; httpd -f -p 8080 -h /pages & wait"]
    env_file: web.env
    volumes: ["./pages:/pages:ro"]
    restart: always
    depends_on:
      setup: {{ condition: service_completed_successfully }}
    healthcheck:
      test: ["CMD-SHELL", "wget -q -O - http://127.0.0.1:8080/ | grep 'is ready'"]
      interval: 500ms
    labels:
      ofelia.enabled: "true"
      ofelia.job-exec.clean.schedule: "@every 1s"
      ofelia.job-exec.clean.command: "sh -c 'echo cleaning $$MODE'"
  client:
    image: {IMAGE}
    command: ["sh", "-c", "echo begins; wget -q -O - http://web:8080/; trap 'exit 0' TERM; sleep 1000000 & wait"]
    depends_on:
      web: {{ condition: service_healthy }}
  ofelia:
    image: mcuadros/ofelia:latest
    command: daemon --docker
    labels:
      ofelia.job-run.dump.schedule: "0 30 2 * * *"
      ofelia.job-run.dump.image: {IMAGE}
      ofelia.job-run.dump.command: echo dumped
"""


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_imported_compose_file_runs(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Services start in the order of their dependencies, and restart; jobs of ofelia run.

    Services reach each other by name, where the engine has a name server. A stop of the daemon leaves no container.
    """
    with container_engine(name) as engine:
        for variable, value in engine.env.items():
            monkeypatch.setenv(variable, value)
        (tmp_path / "pages").mkdir()
        (tmp_path / "web.env").write_text("MODE=live\n")
        (tmp_path / "compose.yaml").write_text(COMPOSE)
        imported = subprocess.run(
            [RINGWARD, "import", "compose", tmp_path / "compose.yaml"], capture_output=True, text=True
        )
        assert imported.returncode == 0, imported.stderr
        daemon.write(imported.stdout, daemon='shutdown_timeout = "30s"')
        daemon.start()
        try:
            client = until(lambda: daemon.runs("client"), "the client", 60.0)[0]["id"]
            until(lambda: "begins" in daemon.texts(client), "its first line", 60.0)
            if engine.resolves_names:
                until(lambda: "it is ready" in daemon.texts(client), "the page of web")
            (web,) = daemon.runs("web")
            assert daemon.texts(web["id"]) == ["serving live"]
            # The first attempt may come before the network, for which a task does not wait.
            assert [run["endReason"] for run in daemon.runs("setup")][-1] == "succeeded"

            def cleaned() -> bool:
                ended = [run["id"] for run in daemon.runs("clean") if run.get("endReason") == "succeeded"]
                return any(daemon.texts(run) == ["cleaning live"] for run in ended)

            until(cleaned, "a job of ofelia in the container")
            dump = daemon.ended(daemon.trigger("dump"))
            assert (dump["endReason"], daemon.texts(dump["id"])) == ("succeeded", ["dumped"])
            (container,) = engine.containers("label=ringward.compose=shop.web")
            engine.client("kill", container)
            until(lambda: [run["status"] for run in daemon.runs("web")] == ["ended", "running"], "the next container")
            until(lambda: daemon.texts(daemon.runs("web")[1]["id"]) == ["serving live"], "its output")
            assert daemon.cli("stop", "client").returncode == 0
            until(lambda: not engine.containers("label=ringward.compose=shop.client"), "its container to be gone")
            assert daemon.stop() == 0
            assert engine.containers() == []
        finally:
            if daemon.process is not None and daemon.process.poll() is None:
                daemon.stop()
            for left in engine.containers():
                engine.client("rm", "--force", left)
