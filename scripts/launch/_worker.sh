# shellcheck shell=bash
# Shared by the launchers, on the machines that they start: installs the checkout, and enters it.
# Sourced from the root of the checkout.

# install_worker PLATFORM: into .venv, with a Python from uv where the machine's own is too old.
install_worker() {
  # shellcheck source=scripts/_venv.sh
  source scripts/_venv.sh
  if [[ -z ${JAX_RL_PYTHON:-} ]] && ! (find_python) >/dev/null 2>&1; then
    python3 -m pip install --user --quiet uv
    ~/.local/bin/uv python install --quiet 3.12
    JAX_RL_PYTHON=$(~/.local/bin/uv python find 3.12)
  fi
  install_project "$PWD/.venv" "[$1]"
}

# enter_worker PLATFORM [VENV]: the commands of the environment on PATH, the platform's flags set.
enter_worker() {
  local flags venv=${2:-$PWD/.venv}
  flags=$("$venv/bin/python" -m jax_rl.hosts.xla_flags "$1")
  eval "$flags"
  export PATH="$venv/bin:$PATH"
}
