#!/usr/bin/env bash
# Install what the build needs from the system, only what is missing and only where that is possible:
# as root on a system with apt-get. Elsewhere it says what is missing; Meson then fetches the libraries itself.
#
#   system_packages.sh         what the build needs
#   system_packages.sh fuzz    clang with libFuzzer, which only the fuzz suite of `make test-full` needs
set -u

declare -A commands=([g++]=g++ [git]=git [pkg-config]=pkg-config [ccache]=ccache)
declare -A headers=([fmt/core.h]=libfmt-dev [nlohmann/json.hpp]=nlohmann-json3-dev [xxhash.h]=libxxhash-dev
  [CLI/CLI.hpp]=libcli11-dev [gtest/gtest.h]=libgtest-dev)

missing=()
if [ "${1:-}" = fuzz ]; then
  commands=() headers=()
  compgen -c clang++ >/dev/null || missing+=(clang)
  compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a' >/dev/null || missing+=(libclang-rt-dev)
else
  python3 -c 'import ensurepip, sysconfig, os, sys
sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null || missing+=(python3-dev python3-venv)
fi
for command in "${!commands[@]}"; do
  command -v "$command" >/dev/null || missing+=("${commands[$command]}")
done
for header in "${!headers[@]}"; do
  [ -e "/usr/include/$header" ] || [ -e "/usr/local/include/$header" ] || missing+=("${headers[$header]}")
done

[ ${#missing[@]} -eq 0 ] && exit 0
echo "system packages missing: ${missing[*]}"
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  { apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; } ||
    echo "apt-get failed; going on: a missing library is fetched by Meson (subprojects/*.wrap), a suite without its tools is skipped"
else
  echo "as root on Debian or Ubuntu: apt-get install ${missing[*]}"
  echo "going on without: a missing library is fetched by Meson (subprojects/*.wrap), a suite without its tools is skipped;"
  echo "a missing g++ or Python.h is an error"
fi
exit 0
