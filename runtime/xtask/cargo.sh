#!/bin/sh
# Sees to a cargo that is new enough and to a linker: the two things without which xtask cannot be built. Everything else is
# xtask's (cargo xtask setup). Prints nothing when all is there. With the argument `xtask`, also builds xtask if it was never built here.
#
# There is no rust-toolchain.toml on purpose: rustup would go to the network for it, and hang where there is none.
set -eu
cd "$(dirname "$0")/../.."
wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' Cargo.toml)
PATH="$HOME/.cargo/bin:$PATH"

# Whether `cargo` and `rustc` are there and at least $wanted.
enough() {
    command -v cargo >/dev/null 2>&1 || return 1
    have=$(rustc --version 2>/dev/null | cut -d' ' -f2) || return 1
    [ -n "$have" ] && [ "$(printf '%s\n%s\n' "$wanted" "$have" | sort -V | head -n1)" = "$wanted" ]
}

# Installs Debian packages as root or through sudo; fails without asking for a password where neither is there.
packages() {
    command -v apt-get >/dev/null 2>&1 || return 1
    as=
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || return 1
        as='sudo -n'
    fi
    echo "==> installing $* through apt"
    # Another apt may be at work, on a fresh machine mostly the one that brings it up to date.
    apt="$as env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3"
    # A stale list is no reason to give up.
    $apt update -q || true
    $apt install -y -q --no-install-recommends "$@"
}

if ! command -v cc >/dev/null 2>&1; then
    packages gcc libc6-dev || {
        echo 'error: there is no C compiler, which Rust needs to link' >&2
        echo '  help: apt-get install gcc libc6-dev   (or what your distribution calls them)' >&2
        exit 1
    }
fi

# `cargo xtask` is quiet, which is right for all times but the first.
ready() {
    if [ "$1" != xtask ] || [ -x "${CARGO_TARGET_DIR:-target}/debug/xtask" ]; then exit 0; fi
    echo '==> building xtask, the program behind these verbs (some minutes, once)'
    exec cargo build --bin xtask
}

enough && ready "${1:-}"
echo "==> Rust $wanted or newer is needed, this machine has ${have:-none}"
if command -v rustup >/dev/null 2>&1; then
    timeout 300 rustup toolchain install "$wanted" --profile minimal --component clippy --component rustfmt || true
    # For this checkout only: what the rest of the machine uses stays as it is.
    timeout 20 rustup override set "$wanted" || true
else
    command -v curl >/dev/null 2>&1 || packages curl ca-certificates || true
    script=$(mktemp)
    if curl --proto '=https' --tlsv1.2 -sSf --connect-timeout 10 --retry 2 --max-time 60 -o "$script" https://sh.rustup.rs; then
        timeout 300 sh "$script" -y --no-modify-path --profile minimal --component clippy --component rustfmt \
            --default-toolchain "$wanted" || true
    fi
    rm -f "$script"
fi
enough && ready "${1:-}"
# Debian keeps a current Rust for its browsers, under other names beside the old one.
packages rustc-web cargo-web || true
enough && ready "${1:-}"
echo "error: Rust $wanted could not be installed" >&2
echo '  help: install it as https://rustup.rs says, then run the same command again' >&2
exit 1
