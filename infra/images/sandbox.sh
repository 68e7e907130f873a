#!/bin/bash
# Builds what candidates see in the docker sandbox backend: a base image without what could raise rights.
#
#   infra/images/sandbox.sh [NAME [BASE]]      rollstream-candidate:local from rollstream-base:local unless given
#
# BASE may be any image with python3 (3.11 or newer) on its PATH. Nothing is fetched: there is no network in the build.
set -euo pipefail

name=${1:-rollstream-candidate:local}
base=${2:-rollstream-base:local}
here=$(cd "$(dirname "$0")" && pwd)

docker image inspect "$base" >/dev/null 2>&1 || { echo "sandbox image: there is no $base: infra/images/base.sh $base" >&2; exit 1; }
echo "== sandbox image $name from $base"
build() { docker build --quiet --network none --build-arg "BASE=$base" --file "$here/sandbox.Dockerfile" --tag "$name" "$here" >/dev/null; }
DOCKER_BUILDKIT=0 build 2>/dev/null || build # the older builder needs no plugin; where it is gone, the newer one is there
echo "== $name is there: isolation.docker_image = $name"
