# Shared by the scripts here: a Debian to run things in, a Python with what the cases import, podman. Sourced, not run,
# at the top of the checkout.
. scripts/lib.sh

place=$PWD/target/containers
root=$place/root
site=$place/site
mkdir -p "$place"

# require COMMAND=PACKAGE...: installs what is missing. What cannot be had skips this script, and says so loudly.
require() {
    need "$@"
    local pair missing=""
    for pair in "$@"; do
        have "${pair%%=*}" || missing+=" ${pair%%=*}"
    done
    [ "$(id -u)" = 0 ] || missing+=" root"
    if [ -n "$missing" ]; then
        printf '\n!! SKIPPED: %s: missing:%s\n' "$0" "$missing"
        exit 0
    fi
}

# A Debian with systemd, Python and what the cases run; made once, and never changed by what runs in it.
make_root() {
    [ ! -e "$root/etc/agent-made" ] || return 0
    step "debootstrap"
    rm -rf "$root"
    debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,python3,git,procps,util-linux,ca-certificates \
        bookworm "$root" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$place/debootstrap.log"
    echo 'agent:x:1000:1000::/var/tmp/home:/bin/bash' >>"$root/etc/passwd"
    echo 'agent:x:1000:' >>"$root/etc/group"
    touch "$root/etc/agent-made"
}

# What the cases import, for the Python of the Debian above, which may be another than the one here.
make_site() {
    [ -d "$site/pytest" ] || python3 -m pip install --quiet --disable-pip-version-check --target "$site" \
        --python-version 3.11 --only-binary=:all: pytest websockets
}

# A machine to boot or to install things in: a view of the Debian above that keeps changes to itself. It is gone when the
# script ends; `on_exit` is what has to be done before.
on_exit() { :; }
make_machine() {
    machine=$(mktemp -d --tmpdir="$place")
    mkdir "$machine"/{upper,work,root}
    mount -t overlay overlay -o "lowerdir=$root,upperdir=$machine/upper,workdir=$machine/work" "$machine/root"
    trap 'on_exit; umount "$machine/root"; rm -rf "$machine"' EXIT
}

# A storage of its own, since the one of the machine is not ours; `vfs` works on every file system.
storage=(--storage-driver=vfs --root "$place/storage")
podman=(podman "${storage[@]}" --runtime runc)
podman() {
    command "${podman[@]}" "$@"
}
