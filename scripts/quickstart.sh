#!/usr/bin/env bash
# From a fresh clone to a finished report: installs into .venv, then runs the built-in study.
# Run it again after an interruption and it goes on; run it after the end and the report is
# rebuilt.
#
#   ./scripts/quickstart.sh [overrides, as for `jax-rl study`]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/_venv.sh
source scripts/_venv.sh

directory=runs/quickstart
install_project "$PWD/.venv" ""
installed=$SECONDS
if [[ -f "$directory/report.html" ]]; then
  echo "$directory has a report: only what is missing is run, then the report is rebuilt"
elif [[ -d "$directory" ]]; then
  echo "$directory was interrupted: going on"
fi
.venv/bin/jax-rl study arithmetic --dir "$directory" "$@"
echo "installation $installed s, study $((SECONDS - installed)) s"
echo "open $PWD/$directory/report.html"
