#!/bin/bash
# Makes a builder image for builds without network: a base image with the wheels of all services under /wheels.
#
#   infra/images/wheels.sh [NAME [BASE]]      rollstream-builder:local from rollstream-base:local unless given
#   TORCH="torch==2.13.0"                     the requirement for torch; this machine's pip decides where it comes from
#   WHEELS=FOLDER                             where the wheels are kept between runs (build/wheels)
#   PYTHON=COMMAND                            a Python with pip, of the same version as the base's (.venv's, or python3)
#
# What that Python has installed is packed from there, without any download; what it lacks is fetched by its pip.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
name=${1:-rollstream-builder:local}
base=${2:-rollstream-base:local}
wheels=${WHEELS:-$root/build/wheels}
python=${PYTHON:-$([ -x "$root/.venv/bin/python" ] && echo "$root/.venv/bin/python" || echo python3)}
torch=${TORCH:-torch>=2.6}

fail() { echo "wheels: $1" >&2; exit 1; }
version() { "$@" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

docker image inspect "$base" >/dev/null 2>&1 || fail "there is no $base: infra/images/base.sh $base"
ours=$(version "$python") || fail "$python does not run: set PYTHON"
theirs=$(docker run --rm --network none --entrypoint python3 "$base" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
[ "$ours" = "$theirs" ] || fail "$python is Python $ours, $base holds $theirs: set PYTHON to a $theirs with pip"

echo "== wheels for $name in $wheels: Python $theirs, $torch"
mkdir -p "$wheels"
wanted=("$torch" "$here"/requirements/{light,jail,torch}.txt)
mapfile -t missing < <(PYTHONPATH="$root" "$python" -m infra.images.wheels "$wheels" pip "${wanted[@]}")
if [ -n "${missing[*]}" ]; then
  echo "   fetching ${missing[*]}"
  "$python" -m pip download --quiet --disable-pip-version-check --only-binary :all: --find-links "$wheels" --dest "$wheels" \
    "${missing[@]}"
fi
if ls "$wheels" | grep -q '^nvidia_'; then
  echo "   with CUDA: gigabytes. For a machine without a GPU name a CPU build by TORCH or pip's own configuration" >&2
fi
echo "   $(ls "$wheels" | wc -l) wheels, $(du -sm "$wheels" | cut -f1) MB"
recipe=$(printf 'ARG BASE\nFROM $BASE\nCOPY *.whl /wheels/\n')
build() { docker build --quiet --network none --build-arg "BASE=$base" --tag "$name" --file - "$wheels" <<<"$recipe" >/dev/null; }
DOCKER_BUILDKIT=0 build 2>/dev/null || build # the older builder needs no plugin; where it is gone, the newer one is there
echo "== $name is there: infra/images/build.sh uses it"
