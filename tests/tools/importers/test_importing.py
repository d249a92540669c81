"""Configurations of other programs: the result, and the reports."""

import json
import subprocess
import tempfile
from pathlib import Path

import pytest
import tomli

from supervisor.cli import exit_codes
from supervisor.tools.importers import crontab, procfile, supervisord, systemd
from supervisor.tools.importers.import_result import Outcome, UnreadableFile
from tests.support.command_line import Ringward
from tests.tools.importers.imported import checked, mentions

SYSTEM_CRONTAB = r"""
# /etc/cron.d/shop: cron of the shop
SHELL=/bin/bash
PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin
MAILTO="ops@example.com"

17 *	* * *	root	cd / && run-parts --report /etc/cron.hourly
# Nightly dump
30 2 * * 1-5	postgres	pg_dump shop | gzip > /var/backups/shop-$(date +\%F).sql.gz
@daily root test -x /usr/sbin/anacron || /usr/sbin/anacron -s
@reboot www-data /opt/shop/bin/warm-cache "with 'quotes' and ${BRACES}"
"""
USER_CRONTAB = r"""
MAILTO=""
CRON_TZ=Europe/Prague
*/10 * * * * /home/anna/bin/check-mail >/dev/null 2>&1
0 9 * * mon mail -s "week" boss@example.com%Dear boss,%%all is 100\% well.%
5 4 31 2 0 /never/matters
99 * * * * /usr/bin/wrong
not a line
"""
SUPERVISORD = r"""
[unix_http_server]
file=/var/run/supervisor.sock

[supervisord]
logfile=/var/log/supervisord.log ; the main log
environment=REGION="eu",MODE=live

[program:web]
command=/srv/shop/venv/bin/gunicorn shop:app -b 127.0.0.1:8000 --name "%(program_name)s"
directory=/srv/shop
user=www-data
autorestart=true
startsecs=5
stopsignal=QUIT
stopwaitsecs=30
environment=A="1, 2",B='x%%y',PATH="/srv/bin:%(ENV_PATH)s"
stdout_logfile=/var/log/shop/web.log
stdout_logfile_maxbytes=10MB
redirect_stderr=true
priority=900

[program:worker]
command=/srv/shop/worker --queue %(ENV_QUEUE)s --number %(process_num)02d --only *.job
process_name=%(program_name)s_%(process_num)02d
numprocs=4
exitcodes=0,3
umask=022
autostart=false
killasgroup=true

[group:shop]
programs=web,worker

[eventlistener:memmon]
command=memmon -p web=200MB

[include]
files = conf.d/*.conf
"""
REPORT_SERVICE = r"""
[Unit]
Description=Report of the day
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
User=reports
Group=adm
WorkingDirectory=/srv/reports
Environment="LANG=C.UTF-8" MODE=full
Environment=COSTS=${not_ours}
ExecStartPre=-/usr/bin/rm -f out.pdf
ExecStart=/usr/bin/python3 report.py \
    --month now
ExecStart=/usr/bin/mail-it out.pdf
TimeoutStartSec=10min
Nice=5
MemoryMax=512M
CPUQuota=150%
ProtectSystem=strict
"""
REPORT_TIMER = r"""
[Timer]
OnCalendar=Mon..Fri *-*-* 06:30:00 Europe/Prague
OnCalendar=Sat,Sun 08:00
RandomizedDelaySec=5min
Persistent=true

[Install]
WantedBy=timers.target
"""
API_SERVICE = r"""
[Unit]
Description=API
[Service]
Type=notify
ExecStart=/usr/local/bin/api --listen ${LISTEN} $EXTRA --match *.py ${A}-$$5
Environment=LISTEN=127.0.0.1:9000
Restart=on-failure
RestartSec=2s 500ms
KillSignal=SIGINT
TimeoutStopSec=1min
LimitNOFILE=65536:65536
"""
PROCFILE = """
# processes
web: bundle exec puma -p $PORT
worker: bundle exec sidekiq
release: rake db:migrate
no process
"""


def test_system_crontab(tmp_path: Path) -> None:
    """Users, variables and schedules of a system crontab are converted; an escaped percent sign is literal."""
    outcome = Outcome()
    crontab.read("shop", SYSTEM_CRONTAB, outcome, system=True)
    units = checked(outcome, tmp_path)
    assert list(units) == ["run-parts", "pg_dump", "anacron", "warm-cache"]
    dump = units["pg_dump"]
    assert dump["run"] == "pg_dump shop | gzip > /var/backups/shop-$(date +%F).sql.gz"
    assert (dump["cron"], dump["user"], dump["shell"]) == ("30 2 * * 1-5", "postgres", "/bin/bash")
    assert dump["description"] == "Nightly dump"
    assert dump["env"]["PATH"].startswith("/usr/local/sbin")
    assert (units["run-parts"]["env_base"], units["run-parts"]["working_dir"]) == ("clean", "/root")
    assert units["anacron"]["cron"] == "@daily"
    assert units["warm-cache"]["run_on_start"] == "boot"
    assert units["warm-cache"]["run"].endswith("\"with 'quotes' and ${BRACES}\"")
    assert mentions(outcome, "ops@example.com", "notify_on_failure")


def test_user_crontab(tmp_path: Path) -> None:
    """A user crontab's time zone applies, a job gets its input, and the rest is reported with its line."""
    outcome = Outcome()
    crontab.read("mine", USER_CRONTAB, outcome, system=False)
    units = checked(outcome, tmp_path)
    assert list(units)[:2] == ["check-mail", "mail"]
    assert {unit["timezone"] for unit in units.values()} == {"Europe/Prague"}
    assert not mentions(outcome, "mail to")
    assert mentions(outcome, "mine:7", "schedule cannot be expressed")
    assert mentions(outcome, "mine:8", "not a line of a crontab")
    shell = units["mail"]["run"].replace("mail -s", "echo").replace('echo "week" boss@example.com', "cat")
    done = subprocess.run(["/bin/sh", "-e", "-c", shell], capture_output=True, text=True)
    assert done.stdout == "Dear boss,\n\nall is 100% well.\n"


@pytest.mark.parametrize(
    ("behind", "given"), [("%", ""), ("%x", "x\n"), ("%x%", "x\n"), ("%%", "\n"), ("%x%%", "x\n\n"), ("%%x", "\nx\n")]
)
def test_job_input(tmp_path: Path, behind: str, given: str) -> None:
    """A job gets exactly the input that cron gives: a missing last newline is added, and empty input stays empty."""
    outcome = Outcome()
    crontab.read("mine", f"@daily cat{behind}\n", outcome, system=False)
    (task,) = checked(outcome, tmp_path).values()
    argv = ["/bin/sh", "-e", "-c", task["run"]]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.stdout == given


def test_supervisord(tmp_path: Path) -> None:
    """Programs are converted, even from included files, with the settings that apply to all of them."""
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "more.conf").write_text("[program:more]\ncommand=/bin/cat\nautorestart=false\n")
    outcome = Outcome()
    supervisord.read(str(tmp_path / "supervisord.conf"), SUPERVISORD, outcome)
    units = checked(outcome, tmp_path)
    assert list(units) == ["web", "worker", "more"]
    web, worker = units["web"], units["worker"]
    assert web["run"][-1] == "web"
    assert web["env"] == {"REGION": "eu", "MODE": "live", "A": "1, 2", "B": "x%y", "PATH": "/srv/bin:${PATH}"}
    assert (web["group"], web["restart"], web["stop_signal"]) == ("shop", "always", "SIGQUIT")
    assert (web["graceful_stop"], web["healthy_after"], web["stderr"]) == ("30s", "5s", "merge")
    number = '"$(printf %02d $RINGWARD_INSTANCE)"'
    assert worker["run"] == f"set -f; exec /srv/shop/worker --queue ${{QUEUE}} --number {number} --only '*.job'"
    assert (worker["instances"], worker["exit_codes"], worker["umask"]) == (4, [0, 3], "022")
    assert worker["autostart"] is False
    assert units["more"]["restart"] == "never"
    assert mentions(outcome, "eventlistener:memmon")
    assert mentions(outcome, "/var/log/shop/web.log")
    assert not mentions(outcome, "unix_http_server")


def test_systemd(tmp_path: Path) -> None:
    """A service with a timer becomes a task, and one without becomes a service."""
    outcome = Outcome()
    files = {"/x/report.service": REPORT_SERVICE, "/x/report.timer": REPORT_TIMER, "/x/api.service": API_SERVICE}
    systemd.read(files, outcome)
    units = checked(outcome, tmp_path)
    report, api = units["report"], units["api"]
    assert report["cron"] == ["30 6 * * 1,2,3,4,5", "0 8 * * 0,6"]
    assert (report["timezone"], report["jitter"], report["timeout"]) == ("Europe/Prague", "300s", "600s")
    assert (report["user"], report["working_dir"]) == ("reports:adm", "/srv/reports")
    assert report["env"] == {"LANG": "C.UTF-8", "MODE": "full", "COSTS": "$${not_ours}"}
    assert report["limits"] == {"nice": 5, "memory": "512mb", "cpu": 1.5}
    assert report["run"].splitlines()[0] == "/usr/bin/rm -f out.pdf || :"
    assert report["run"].splitlines()[-1] == "exec /usr/bin/mail-it out.pdf"
    assert "catch_up" not in report
    assert report["catch_up_window"] == "520w"  # a persistent timer runs however late
    assert api["run"] == 'set -f; exec /usr/local/bin/api --listen "${LISTEN}" $EXTRA --match \'*.py\' "${A}-\\$5"'
    assert (api["restart"], api["restart_delay"], api["stop_signal"]) == ("on_failure", "2500ms", "SIGINT")
    assert api["ready"] == {"notify": True, "timeout": "90s"}
    assert api["limits"] == {"nofile": 65536}
    assert mentions(outcome, "ProtectSystem=strict")
    assert mentions(outcome, "Wants=network-online.target")


def test_supervisord_syntax(tmp_path: Path) -> None:
    """Trailing comments, variables that supervisord sets, and values that look like others are read correctly."""
    outcome = Outcome()
    text = """
[supervisord]
user=nobody
umask=027
environment=DATE="+%%F"
[program:one]
command=/bin/cat -u ; what it does
umask=022 # our own
[program:many]
command=/bin/many
numprocs=100
process_name=%(process_num)d
directory=%(ENV_HOME)s/many
environment=PORT="80%(process_num)02d"
[group:all]
programs=one,many
priority=5
"""
    supervisord.read("s.conf", text, outcome)
    units = checked(outcome, tmp_path)
    first, many = units["one"], units["many"]
    assert (first["run"], first["umask"], first["user"]) == (["/bin/cat", "-u"], "022", "nobody")
    assert (many["umask"], many["user"], many["instances"]) == ("027", "nobody", 64)
    assert first["env"] == {"DATE": "+%F"}
    assert many["working_dir"] == "${HOME}/many"
    assert many["run"] == 'export PORT="80$(printf %02d $RINGWARD_INSTANCE)"; exec /bin/many'
    assert mentions(outcome, "[program:many]", "numprocs = 100")
    assert mentions(outcome, "[group:all]", "priority")


def test_here_in_included_files(tmp_path: Path) -> None:
    """``%(here)s`` is the directory of the file that contains it, even of an included one."""
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "shop.conf").write_text("[program:shop]\ncommand=%(here)s/shop\ndirectory=%(here)s\n")
    outcome = Outcome()
    text = "[include]\nfiles=%(here)s/conf.d/*.conf\n[program:main]\ncommand=%(here)s/main\n"
    supervisord.read(str(tmp_path / "supervisord.conf"), text, outcome)
    units = checked(outcome, tmp_path)
    assert units["main"]["run"] == [f"{tmp_path}/main"]
    assert units["shop"]["run"] == [f"{tmp_path}/conf.d/shop"]
    assert units["shop"]["working_dir"] == f"{tmp_path}/conf.d"


def test_variables_in_supervisord_commands(tmp_path: Path) -> None:
    """Variables are replaced before the command is split into words, and only quotes keep a value together."""
    outcome = Outcome()
    text = """[program:one]
command=printf '%%s;' %(ENV_ARGS)s -x=%(ENV_ARGS)s "%(ENV_ARGS)s" '' a%(ENV_NONE)s %(ENV_NONE)s "%(ENV_NONE)s"
"""
    supervisord.read("s.conf", text, outcome)
    run = checked(outcome, tmp_path)["one"]["run"]
    variables = {"PATH": "/usr/bin:/bin", "ARGS": "-w 4 /*", "NONE": ""}
    done = subprocess.run(["/bin/sh", "-e", "-c", run], env=variables, capture_output=True, text=True)
    assert done.stdout == "-w;4;/*;-x=-w;4;/*;-w 4 /*;;a;;"


def test_procfile(tmp_path: Path) -> None:
    """Processes of a Procfile get its variables and the ports that Foreman assigns."""
    (tmp_path / ".env").write_text("A=1\n")
    (tmp_path / ".env").chmod(0o600)
    outcome = Outcome()
    procfile.read(str(tmp_path / "Procfile"), PROCFILE, outcome)
    units = checked(outcome, tmp_path)
    assert [units[name]["env"]["PORT"] for name in ("web", "worker")] == ["5000", "5100"]
    (tmp_path / ".env").write_text("A=1\nPORT=3000\n")
    outcome = Outcome()
    procfile.read(str(tmp_path / "Procfile"), PROCFILE, outcome)
    assert checked(outcome, tmp_path)["worker"]["env"] == {"PORT": "3100"}
    assert units["web"]["env_file"] == [str(tmp_path / ".env")]
    assert outcome.units[2].kind == "tasks"
    assert mentions(outcome, "Procfile:6", "not a line of a Procfile")


def test_procfile_commands_in_sequence(tmp_path: Path) -> None:
    """A command of a Procfile continues after a part that fails, as with Foreman."""
    outcome = Outcome()
    procfile.read(str(tmp_path / "Procfile"), "web: false; echo $PORT\njob: true && echo 'a;b' | cat # c; d\n", outcome)
    units = checked(outcome, tmp_path)
    assert units["web"]["run"] == ["/bin/sh", "-c", "false; echo $PORT"]
    assert units["job"]["run"] == "true && echo 'a;b' | cat # c; d"


def test_names_are_valid_and_unique(tmp_path: Path) -> None:
    """Any name in the other program becomes a valid and unique one."""
    outcome = Outcome()
    for name in ("a b/c", "a b/c", "ä", "..", "x" * 300):
        outcome.add("tasks", name, {"run": "true"}, "here\nand there")
    units = checked(outcome, tmp_path)
    assert list(units)[:3] == ["a-b-c", "a-b-c-2", "task"]


def test_changed_names_are_reported() -> None:
    """A name that is there twice, or that cannot stay as it is, is reported, unless the importer invented it."""
    outcome = Outcome()
    for name, place in (("web", "one"), ("web", "two"), ("a b", "three")):
        outcome.add("services", name, {"run": "true"}, place)
    for place in ("four", "five"):
        outcome.add("tasks", "job", {"run": "true"}, place, invented=True)
    assert outcome.notes == ["two: there is another web: is named web-2 here", "three: is named a-b here"]
    assert "# CHECK: there is another web: is named web-2 here\n[services.web-2]" in outcome.toml("a test")


def test_note_about_many_units() -> None:
    """A note that holds for many units stands once, at the top, and names them all."""
    outcome = Outcome()
    for place in ("one", "two"):
        outcome.note(place, "is different")
        outcome.advise(place, f"is {place}")
        outcome.add("services", place, {"run": "true"}, place)
    assert outcome.notes == ["one, two: is different", "one: is one", "two: is two"]
    toml = outcome.toml("a test")
    assert toml.count("is different") == 1
    assert toml.index("# CHECK: one, two: is different") < toml.index("# Note: is one\n[services.one]")


def test_unreadable_unit_does_not_stop_the_import() -> None:
    """A command with unclosed quotes is reported with its place, and all other units are converted."""
    outcome = Outcome()
    text = '[program:broken]\ncommand=/bin/sh -c "oops\n[program:sound]\ncommand=/bin/true\nautorestart=true\n'
    supervisord.read("shop.conf", text, outcome)
    broken, sound = ('[Service]\nExecStart=/bin/sh -c "oops\n', "[Service]\nExecStart=/bin/true\n")
    systemd.read({"b.service": broken, "s.service": sound}, outcome)
    assert [unit.name for unit in outcome.units] == ["sound", "s"]
    assert [str(note) for note in outcome.lost] == [
        "shop.conf [program:broken], b.service: is not converted: No closing quotation"
    ]


def test_unknown_files() -> None:
    """A file of an unknown format is refused."""
    with pytest.raises(UnreadableFile):
        systemd.read({"x.service": "no unit"}, Outcome())
    with pytest.raises(UnreadableFile):
        supervisord.read("x", "command=1", Outcome())


def test_command(ringward: Ringward, tmp_path: Path) -> None:
    """The command writes a valid new file, reports the result, and overwrites nothing."""
    source, target = tmp_path / "crontab", tmp_path / "tasks.toml"
    source.write_text(SYSTEM_CRONTAB)
    result = ringward("import", "cron", "--system", str(source), "-o", str(target), plain=True)
    assert result.exit_code == exit_codes.REFUSED  # for MAILTO
    assert "4 tasks, 0 services" in result.output
    assert ringward("validate", str(target), plain=True).exit_code == exit_codes.OK
    again = ringward("import", "cron", "--system", str(source), "-o", str(target), plain=True)
    assert (again.exit_code, "import overwrites nothing" in again.stderr) == (exit_codes.REFUSED, True)
    document = json.loads(ringward("import", "cron", "--system", "--json", str(source), plain=True).stdout)
    assert f"#:schema ./ringward.schema.json\n{document['toml']}" == target.read_text()
    assert document["problems"] == []
    assert document["notes"]


def test_unreadable_and_unwritable_files(ringward: Ringward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be read or written has another exit code than a conversion with gaps."""
    source = tmp_path / "crontab"
    missing = ringward("import", "cron", str(source), plain=True)
    assert (missing.exit_code, "No such file" in missing.stderr) == (exit_codes.USAGE, True)
    source.write_text("0 1 * * * true\n")
    unwritable = ringward("import", "cron", str(source), "-o", str(tmp_path / "missing/x.toml"), plain=True)
    assert (unwritable.exit_code, "No such file" in unwritable.stderr) == (exit_codes.OUTPUT, True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    unchecked = ringward("import", "cron", str(source), plain=True)
    assert (unchecked.exit_code, "set TMPDIR" in unchecked.stderr) == (exit_codes.OUTPUT, True)


def test_invalid_result(ringward: Ringward, tmp_path: Path) -> None:
    """A configuration that is not valid yet is printed with its problems, for users to complete."""
    (tmp_path / "x.service").write_text("[Service]\nExecStart=/bin/true\nKillSignal=SIGSTOP\n")
    result = ringward("import", "systemd", str(tmp_path / "x.service"), plain=True)
    assert result.exit_code == exit_codes.CONFIG
    assert "[services.x]" in result.output
    assert "stop_signal" in result.output


@pytest.mark.parametrize("name", ["a\n[tasks.more]\nrun = 'x'\n#", "a\udcff"])
def test_arbitrary_file_names(ringward: Ringward, tmp_path: Path, name: str) -> None:
    """A file name stays within its comment, and need not be UTF-8."""
    path = tmp_path / name
    path.write_text("0 1 * * * true\n")
    result = ringward("import", "cron", str(path), plain=True)
    assert (result.exit_code, list(tomli.loads(result.stdout)["tasks"])) == (0, ["task"])
