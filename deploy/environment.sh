#!/bin/sh
# environment.sh PYTHON VENV WHAT: create the virtual environment VENV unless a working one exists, and install WHAT.
# The packages that Ringward needs have the versions and hashes of deploy/locked. With LOCKED= they are the newest.
set -eu
python=$1 venv=$2 what=$3

fail() {
    echo "ringward: $*" >&2
    exit 1
}

command -v "$python" >/dev/null || fail "$python is not installed; Python 3.11 or newer is needed (PYTHON=... names another)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old: Python 3.11 or newer is needed (make PYTHON=/path/to/python3.11)"

# An interrupted installation or an upgraded system Python leaves a broken environment: create it anew.
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        # Debian and Ubuntu ship Python without it.
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            echo "Installing the Debian package python3-venv ..."
            { apt-get update -qq && apt-get install -y -qq python3-venv; } >/dev/null ||
                fail "apt-get could not install python3-venv"
        else
            fail "Python's venv module is missing; install it first: sudo apt-get install python3-venv"
        fi
    fi
    echo "Creating $venv with $("$python" --version) ..."
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi

pip() {
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --root-user-action=ignore "$@" ||
        fail "the installation failed; the lines above say why"
}
src=${what%%\[*}
if [ -n "${LOCKED=yes}" ]; then
    locks=$src/deploy/locked run=$src/deploy/locked/run.txt
    if "$venv/bin/python" -c 'import sys, sysconfig; sys.exit("musl" not in (sysconfig.get_config_var("SOABI") or ""))'; then
        echo "google-re2 has no wheel for musl, so it is left out: regular expressions are errors (docs/deployment.rst)"
        run=$venv/run.txt
        sed '/^google-re2==/,/[^\\]$/d' "$locks/run.txt" > "$run"
    fi
    echo "Installing the packages that Ringward needs (a minute at most) ..."
    pip --require-hashes --requirement "$locks/build.txt" --requirement "$run"
    echo "Installing Ringward ..."
    pip --no-build-isolation --no-deps --editable "$src"
fi
if [ -z "$LOCKED" ] || [ "$what" != "$src" ]; then
    echo "Installing $what ..."
    pip --editable "$what"
fi
# A user without write permission here would compile everything at each start.
"$venv/bin/python" -m compileall -q "$src/ringward.py" "$src/api" "$src/logring" "$src/store" "$src/supervisor" ||
    echo "ringward: some modules could not be compiled; starts take longer" >&2
echo "Installed $("$venv/bin/python" -c 'import supervisor.version as v; print("Ringward", v.VERSION)')."
