# Shared by the scripts: says what is done, and installs what is missing. Sourced, not run.

step() {
    printf '\n== %s\n' "$*"
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# install_packages PACKAGE...: installs Debian packages, or says that it cannot.
install_packages() {
    if [ "$(id -u)" != 0 ] || ! have apt-get; then
        echo "missing: $* (installing takes root and apt-get; tests that need them are skipped or fail)"
        return 0
    fi
    step "apt-get install $*"
    DEBIAN_FRONTEND=noninteractive apt-get update -q >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >/dev/null
}

# need COMMAND=PACKAGE...: installs the packages of the commands that are missing.
need() {
    local pair missing=()
    for pair in "$@"; do
        have "${pair%%=*}" || missing+=("${pair#*=}")
    done
    [ "${#missing[@]}" = 0 ] || install_packages "${missing[@]}"
}

# python_with MODULE=PACKAGE...: sets `python` to one that has these modules: the system's, or a virtual environment under
# target/, into which the packages are installed.
python_with() {
    local modules packages
    modules=$(printf '%s\n' "${@%%=*}" | paste -sd,)
    packages=("${@#*=}")
    python=python3
    if python3 -c "import $modules" 2>/dev/null; then return; fi
    python=$PWD/target/python/bin/python
    if [ -x "$python" ] && "$python" -c "import $modules" 2>/dev/null; then return; fi
    step "pip install ${packages[*]}"
    # Debian keeps the installer of virtual environments in a package of its own.
    python3 -m venv target/python >/dev/null 2>&1 || { install_packages python3-venv && python3 -m venv --clear target/python; }
    "$python" -m pip install --quiet --disable-pip-version-check "${packages[@]}"
}

# Builds that follow have no trace of where and when: paths are those of a checkout in /src, times are the commit's.
reproducible() {
    local cargo_home=${CARGO_HOME:-$HOME/.cargo}
    export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$PWD=/src --remap-path-prefix=$cargo_home=/cargo"
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
    export SOURCE_DATE_EPOCH
}
