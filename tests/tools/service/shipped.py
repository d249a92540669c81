"""The files of init systems that are in ``deploy/``; ``python -m tests.tools.service.shipped`` writes them."""

from pathlib import Path

from supervisor.config.files.lookup import SYSTEM_DATA, SYSTEM_FILE
from supervisor.tools.service import systemd_plan
from supervisor.tools.service.detection import KINDS
from supervisor.tools.service.init_plans import OPENRC_LOGROTATE, OPENRC_SCRIPT, RUNIT_DIRECTORY, S6_DIRECTORY, plan
from supervisor.tools.service.plan import DEFAULT_PROGRAM, File, InstallOptions
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy"
NAMES = {
    systemd_plan.UNIT: "systemd/ringward.service",
    systemd_plan.HARDENING: "systemd/hardening.conf",
    systemd_plan.BEFORE_254: "systemd/before-254.conf",
    systemd_plan.SYSUSERS: "systemd/sysusers.conf",
    systemd_plan.TMPFILES: "systemd/tmpfiles.conf",
    OPENRC_SCRIPT: "openrc/ringward",
    OPENRC_LOGROTATE: "openrc/ringward.logrotate",
}


def shipped() -> dict[Path, File]:
    """Return the files for a daemon that runs as root; a dedicated user and hardening are options."""
    plain = InstallOptions(DEFAULT_PROGRAM, SYSTEM_FILE, SYSTEM_DATA)
    optional = InstallOptions(DEFAULT_PROGRAM, SYSTEM_FILE, SYSTEM_DATA, user="ringward")
    hardened = InstallOptions(DEFAULT_PROGRAM, SYSTEM_FILE, SYSTEM_DATA, hardened=True, old_systemd=True)
    files_by_path = {}
    for kind in KINDS:
        for options in (optional, hardened, plain):  # if several plans write a file, the last one counts
            for file in plan(kind, options).files:
                files_by_path[DEPLOY / _name(file.path)] = file
    return files_by_path


def _name(path: str) -> str:
    if path in NAMES:
        return NAMES[path]
    kind, directory = ("s6", S6_DIRECTORY) if path.startswith(S6_DIRECTORY) else ("runit", RUNIT_DIRECTORY)
    return f"{kind}/ringward/{path.removeprefix(f'{directory}/')}"


if __name__ == "__main__":
    for place, content in shipped().items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content.text)
        place.chmod(content.mode)
