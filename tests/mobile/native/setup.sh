#!/usr/bin/env bash
# What the tests of the marker `native` need, on Debian 12: cross compilers, qemu, Chromium, OpenJDK; from pip Zig, which
# compiles WebAssembly and for Android; from npm LiteRT.js, TypeScript, Kotlin's compiler and what drives Chromium. The npm packages go to $KERASBERT_NPM,
# ~/.cache/kerasbert/npm by default.
#
#     tests/mobile/native/setup.sh                 # Debian's packages as root
#     python -m pytest -n 0 -m native -s
set -euo pipefail

folder=${KERASBERT_NPM:-${XDG_CACHE_HOME:-$HOME/.cache}/kerasbert/npm}
packages="gcc gcc-aarch64-linux-gnu gcc-arm-linux-gnueabihf gcc-arm-linux-gnueabi libc6-dev-arm64-cross libc6-dev-armhf-cross
libc6-dev-armel-cross qemu-user g++ cmake chromium
fonts-dejavu-core openjdk-17-jdk-headless nodejs npm"

# a tool that is there already, of Debian's or another's, is left as it is
missing=()
for package in $packages; do
    case $package in
        nodejs) command -v node > /dev/null || missing+=("$package") ;;
        npm) command -v npm > /dev/null || missing+=("$package") ;;
        openjdk*) command -v javac > /dev/null || missing+=("$package") ;;
        *) dpkg -s "$package" > /dev/null 2>&1 || missing+=("$package") ;;
    esac
done
if [ ${#missing[@]} -gt 0 ]; then
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}"
fi

mkdir -p "$folder"
# the versions that the tests passed with
npm install --prefix "$folder" --no-audit --no-fund @litertjs/core@2.5.3 playwright-core@1.65.1 typescript@5.9.3 axe-core@4.14.1 kotlin-compiler@2.4.20
python -m pip install ziglang==0.17.1
echo "KERASBERT_NPM=$folder KOTLINC=$folder/node_modules/kotlin-compiler/bin/kotlinc"
