#!/bin/bash
# Builds the images of all services, or of those named, as rollstream-SERVICE:TAG.
#
#   infra/images/build.sh [--tag TAG] [--push REGISTRY] [SERVICE…]      TAG: dev unless given
#   infra/images/build.sh --list                                        print the services and end
#   BASE=IMAGE       what they start from; rollstream-base:local where it is there, else python:3.11-slim
#   BUILDER=IMAGE    BASE with wheels, for builds without network; rollstream-builder:local where BASE is rollstream-base:local
#   TORCH=REQUIREMENT, TORCH_INDEX=URL      which torch, and from which further index
#   VERSION, REVISION, SOURCE               what the labels say; pyproject.toml, git and nothing unless given
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
fail() { echo "images: $1" >&2; exit 1; }
there() { docker image inspect "$1" >/dev/null 2>&1; }

# The targets in the order of the file: those that need torch come last.
known=$(sed -n 's/^FROM \(light\|jail\|torch\) AS \([a-z]*\)$/\2/p' "$here/Dockerfile" | grep -vx 'light\|jail\|torch')
label=org.opencontainers.image

context() { # FOLDER: what builds read. All images of one build are of the same source, whatever is edited meanwhile
  mkdir "$1"
  (cd "$root" && tar --create --exclude=__pycache__ .dockerignore pyproject.toml schemas services infra/*.py infra/local infra/prepare \
    infra/images/{Dockerfile,describe.py,libraries.py,rollstream,requirements}) | tar --extract --directory "$1"
}

defaults() { # BASE, BUILDER and what the labels say, as far as they are not given
  if [ -z "${BASE:-}" ]; then BASE=python:3.11-slim; if there rollstream-base:local; then BASE=rollstream-base:local; fi; fi
  if [ -z "${BUILDER:-}" ]; then
    BUILDER=$BASE
    if [ "$BASE" = rollstream-base:local ]; then
      BUILDER=rollstream-builder:local
      there "$BUILDER" || fail "there is no $BUILDER with wheels for $BASE: infra/images/wheels.sh"
    fi
  fi
  VERSION=${VERSION:-$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/pyproject.toml")}
  REVISION=${REVISION:-$(git -C "$root" describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null || echo unknown)}
}

build() { # SERVICE NAME FOLDER
  local arguments=(--build-arg "BASE=$BASE" --build-arg "BUILDER=$BUILDER")
  [ -z "${TORCH:-}" ] || arguments+=(--build-arg "TORCH=$TORCH")
  [ -z "${TORCH_INDEX:-}" ] || arguments+=(--build-arg "TORCH_INDEX=$TORCH_INDEX")
  # A build from wheels needs no network, and must not come to need it unseen.
  [ "$BUILDER" = "$BASE" ] || arguments+=(--network none)
  arguments+=(--label "$label.version=$VERSION" --label "$label.revision=$REVISION")
  [ -z "${SOURCE:-}" ] || arguments+=(--label "$label.source=$SOURCE")
  docker build "${arguments[@]}" --file "$3/infra/images/Dockerfile" --target "$1" --tag "$2" "$3" </dev/null
}

main() {
  local tag=dev push='' services=() service name before table=''
  while [ $# -gt 0 ]; do
    case $1 in
      --tag) tag=${2:?--tag needs a tag}; shift 2 ;;
      --push) push=${2:?--push needs a registry and a path, such as registry.example/team}; shift 2 ;;
      --list) echo "$known"; exit ;;
      -*) sed -n '2,/^set -euo/{/^#/p}' "$0" | cut -c3-; exit 2 ;;
      *) services+=("$1"); shift ;;
    esac
  done
  for service in "${services[@]}"; do
    grep -qx "$service" <<<"$known" || fail "there is no $service; one of: $(tr '\n' ' ' <<<"$known")"
  done
  [ ${#services[@]} -gt 0 ] || mapfile -t services <<<"$known"
  docker version >/dev/null 2>&1 || fail "no Docker Engine answers at ${DOCKER_HOST:-its usual socket}"
  defaults
  work=$(mktemp -d)
  trap 'rm -rf --one-file-system "$work"' EXIT
  context "$work/context"

  for service in "${services[@]}"; do
    name=rollstream-$service:$tag
    echo "== $name"
    before=$(date +%s%N)
    build "$service" "$name" "$work/context" >"$work/log" 2>&1 ||
      { tail -n 25 "$work/log" >&2; fail "$name could not be built"; }
    table+=$(printf '%-32s %8s %8s' "$name" \
      "$(docker image inspect --format '{{.Size}}' "$name" | awk '{ printf "%.0f", $1 / 1e6 }')" \
      "$(awk -v ns=$(($(date +%s%N) - before)) 'BEGIN { printf "%.1f", ns / 1e9 }')")$'\n'
    if [ -n "$push" ]; then docker tag "$name" "$push/$name"; docker push --quiet "$push/$name"; fi
  done
  printf '\n%-32s %8s %8s\n%s' "image (from $BASE)" MB seconds "$table"
}

main "$@"; exit # read as a whole before it runs: it may be edited meanwhile
