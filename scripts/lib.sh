# Shared by the scripts: says what is done, and installs what is missing. Sourced, not run.

step() {
    printf '\n== %s\n' "$*"
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# need_packages COMMAND=PACKAGE...: installs the Debian packages of the commands that are missing.
need_packages() {
    local pair missing=()
    for pair in "$@"; do
        have "${pair%%=*}" || missing+=("${pair#*=}")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ] || ! have apt-get; then
        echo "missing: ${missing[*]} (cannot install without root and apt-get; tests that need them are skipped or fail)"
        return 0
    fi
    step "apt-get install ${missing[*]}"
    DEBIAN_FRONTEND=noninteractive apt-get update -q >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
}
