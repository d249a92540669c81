"""The configuration file of the demo."""

from datetime import UTC, datetime

from supervisor.tools.demo.sample_tasks import BACKUP, DEMO_TASKS, DemoTask

_HEAD = """\
# Written by ringward demo: a shop that does not exist.

[daemon]
data_dir = "data"

[http]
listen = ["127.0.0.1:7464"]

[storage]
min_free_space = "0b"
compress_after = "10m"

[defaults]
keep_runs = 100000
keep_refused = 100000
keep_for = "800d"
"""

_HOLIDAYS = ("01-01", "12-24", "12-25", "12-26", "12-31")

_BACKUP_SCRIPT = r"""
echo "dumping database shop"
for table in customers orders order_items products prices stock; do
    printf '  %-12s %7d rows\n' "$table" "$(( 1000 + 7919 * ${#table} ))"
    sleep 0.4
done
printf '\033[32mok\033[0m  dump is complete and can be restored\n'
echo "free on /var/backups: 212 GB"
"""

_SCRIPT = r"""
echo "{name}: started"
for part in 1 2 3 4 5; do
    echo "{name}: part $part of 5"
    sleep 0.5
done
printf '\033[32m{name}: done\033[0m\n'
"""

_REST = r"""
[tasks.encode-video]
description = "Encodes the film of the week; draws a progress bar"
group = "Website"
run_on_start = true
run = '''
echo "film-2417.mov: 12480 frames"
frame=0
while [ $frame -lt 12480 ]; do
    frame=$(( frame + 26 ))
    done=$(( frame * 30 / 12480 ))
    bar=$(printf '%*s' $done '' | tr ' ' '#')
    printf '\rencoding  [%-30s] %3d %%  frame %d' "$bar" $(( frame * 100 / 12480 )) $frame
    sleep 0.5
done
printf '\nwritten film-2417.mp4\n'
'''

[flows.new-prices]
description = "Prices of the suppliers, checked and published together"
group = "Shop"
cron = "45 */4 * * *"
skip_on = ["holidays"]
catch_up = 0
run_on_start = true

[flows.new-prices.steps.fetch]
run = '''
for part in 1 2 3 4 5 6; do
    echo "fetched price list $part of 6"
    sleep 0.5
done
echo "rows=18204" >>"$RINGWARD_OUTPUT"
'''

[flows.new-prices.steps.check]
after = ["fetch"]
each = { country = ["at", "cz", "de"] }
run = [
    "sh", "-c", 'echo "$1: checking $2 rows"; sleep 3; echo "$1: all prices are plausible"', "check",
    "${each:country}", "${step:fetch.rows}",
]

[flows.new-prices.steps.publish]
after = ["check"]
run = 'sleep 2; echo "published"'

[flows.new-prices.steps.tell-buyers]
after = ["check"]
when = "failure"
run = 'echo "told the buyers"'

[services.web]
description = "The shop; prints a line for each request"
group = "Services"
run = '''
trap 'echo "web: closing"; exit 0' TERM
echo "web: listening on 127.0.0.1:8000"
number=0
while :; do
    number=$(( number + 1 ))
    case $(( number % 9 )) in
        4) printf '\033[33mGET /basket 302\033[0m %d ms\n' $(( number % 40 + 8 )) ;;
        7) printf '\033[31mGET /missing 404\033[0m %d ms\n' $(( number % 5 + 1 )) ;;
        *) printf '\033[32mGET /product/%d 200\033[0m %d ms\n' $(( number * 37 % 991 )) $(( number * 7 % 60 + 3 )) ;;
    esac
    sleep 1 & wait $!
done
'''

[services.worker]
description = "Does jobs of the queue"
group = "Services"
instances = 3
run = '''
trap 'echo "worker $RINGWARD_INSTANCE: ends"; exit 0' TERM
number=0
while :; do
    number=$(( number + 1 ))
    echo "worker $RINGWARD_INSTANCE: job $(( number * 3 + RINGWARD_INSTANCE )) done in $(( number * 13 % 80 + 11 )) ms"
    sleep 1 & wait $!
done
'''

[services.cache]
description = "Keeps pages in memory"
group = "Services"
run = '''
trap 'exit 0' TERM
echo "cache: 512 MB"
while :; do
    echo "cache: $(( $(date +%s) % 7 + 91 )) % of the requests were answered from memory"
    sleep 5 & wait $!
done
'''

[services.mailer]
description = "Sends mail; its relay rejects it, so the service gives up"
group = "Services"
restart_delay = "100ms"
restart_attempts = 3
run = '''
echo "mailer: connecting to relay.example.net:587"
sleep 0.1
printf '\033[31mmailer: 535 authentication failed\033[0m\n' >&2
exit 1
'''
"""


def text() -> str:
    """Return the text of the configuration file."""
    year = datetime.now(UTC).year
    dates = [f"{number}-{day}" for number in (year, year + 1) for day in _HOLIDAYS]
    return f"{_HEAD}\n[calendars.holidays]\ndates = {dates}\n" + "".join(map(_table, DEMO_TASKS)) + _REST


def _table(task: DemoTask) -> str:
    body = _BACKUP_SCRIPT if task.name == BACKUP else _SCRIPT.replace("{name}", task.name)
    keys = [f'description = "{task.description}"', f'group = "{task.group}"', f'cron = "{task.cron}"', "catch_up = 0"]
    if task.retries:
        keys.append(f'retry_attempts = {task.retries}\nretry_delay = "2m"')
    if task.timeout_s:
        keys.append(f'timeout = "{task.timeout_s}s"')
    if task.more:
        keys.append(task.more)
    return f"\n[tasks.{task.name}]\n" + "\n".join(keys) + f"\nrun = '''{body}'''\n"
