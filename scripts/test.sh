#!/usr/bin/env bash
# Lint, format, types, tests; arguments go to pytest.
#
#   ./scripts/test.sh                        the fast tests
#   ./scripts/test.sh -m '' tests/test_cli.py    one file, the slow tests of it too
#
# JAX_RL_VENV    the virtual environment to use or make (.venv-test)
# JAX_RL_PYTHON  the Python to make it with (the newest that runs here)
set -euo pipefail
venv=${JAX_RL_VENV:-.venv-test}
[[ -z "${JAX_RL_VENV:-}" || "$venv" == /* ]] || venv=$PWD/$venv
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/_venv.sh
source scripts/_venv.sh

install_project "$venv" "[test]"
"$venv/bin/ruff" check .
"$venv/bin/ruff" format --check .
"$venv/bin/mypy"
# The last line of output is the summary of pytest.
# Whole files to one worker each, so that what a file trains or compiles once is shared.
exec "$venv/bin/python" -m pytest -n auto --dist loadfile "$@"
