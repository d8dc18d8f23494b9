# Runs the load generator of ../shared/bench. Sourced behind scripts/lib.sh, not run.

load_generator=../shared/bench

# build_load_generator: sets `execbench`. It is built under target/, since its own directory is not ours.
build_load_generator() {
    local target=${CARGO_TARGET_DIR:-$PWD/target}/execbench
    step "cargo build (load generator)"
    cargo build --locked --release --quiet --manifest-path "$load_generator/Cargo.toml" --target-dir "$target"
    execbench=$target/release/execbench
}

# run_load FILE SCENARIO... -- OPTION...: runs scenarios one after the other, and appends a line of JSON for each to FILE.
# False if a bound was missed or a scenario could not be run to its end.
run_load() {
    local file=$1 scenario scenarios=() placed failed=0
    shift
    while [ "$1" != -- ]; do
        scenarios+=("$1")
        shift
    done
    shift
    for scenario in "${scenarios[@]}"; do
        placed=()
        # A round trip between cores is the time that a core takes to wake.
        case $scenario in rpc | echo) placed=(--one-core) ;; esac
        "$execbench" "$scenario" "${placed[@]}" "$@" >>"$file" || failed=1
    done
    if grep -q '"errors":' "$file"; then
        echo "a scenario has failed, see ERROR above"
        failed=1
    fi
    return "$failed"
}
