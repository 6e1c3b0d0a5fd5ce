# shellcheck shell=bash
# Shared by quickstart.sh, test.sh and .ci/run: the newest Python that runs, and a virtual
# environment with this checkout in it. Sourced from the root of the checkout.

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# A name on PATH may be a shim that fails, or a Python without its venv package, so it is tried.
runs_here() {
  "$1" -c 'import sys, ssl, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
    >/dev/null 2>&1 </dev/null
}

find_python() {
  local name candidate found=""
  if [[ -n "${JAX_RL_PYTHON:-}" ]]; then
    runs_here "$JAX_RL_PYTHON" || fail "JAX_RL_PYTHON=$JAX_RL_PYTHON does not run here, is older" \
      "than 3.11, or lacks ssl, venv or ensurepip"
    printf '%s\n' "$JAX_RL_PYTHON"
    return
  fi
  for name in python3.13 python3.12 python3.11 python3; do
    while IFS= read -r candidate; do
      if runs_here "$candidate"; then
        printf '%s\n' "$candidate"
        return
      fi
      found+=" $candidate"
    done < <(type -aP "$name")
  done
  fail "no usable Python 3.11 or newer; tried:${found:- nothing that PATH has}. Install one with" \
    "its venv package (Debian, Ubuntu: apt-get install python3 python3-venv)," \
    "or set JAX_RL_PYTHON"
}

version_of() {
  "$1" -c 'import platform; print(platform.python_version())'
}

# install_project VENV EXTRAS: this checkout, editable, so that sharding/ and configs/ are those
# of the checkout. Skipped when the same pyproject.toml went in with the same Python.
install_project() {
  local venv=$1 extras=$2 python wanted stamp="$1/.jax-rl-installed"
  python=$(find_python)
  wanted="$(version_of "$python") $extras $("$python" -c \
    'import hashlib; print(hashlib.sha256(open("pyproject.toml", "rb").read()).hexdigest())')"
  if [[ -x "$venv/bin/jax-rl" && -f "$stamp" && "$(<"$stamp")" == "$wanted" ]]; then
    return
  fi
  if [[ ! -x "$venv/bin/python" ]]; then
    "$python" -m venv "$venv"
  elif [[ -f "$stamp" && "$(version_of "$venv/bin/python")" != "$(version_of "$python")" ]]; then
    "$python" -m venv --clear "$venv" # only ever one that was made here
  fi
  printf 'installing into %s with %s ...\n' "$venv" "$("$venv/bin/python" --version)"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e ".$extras"
  printf '%s\n' "$wanted" >"$stamp"
}
