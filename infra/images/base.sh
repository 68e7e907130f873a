#!/bin/bash
# Builds the base image of all services from this system's own Debian mirror, without any image registry.
#
#   infra/images/base.sh [NAME]      NAME: rollstream-base:local unless given
#   MIRROR=URL SUITE=NAME            another mirror or suite than this system's own apt sources say
#   PACKAGES=a,b                     what goes in beside the minimal system
#
# Needs root, debootstrap and a Docker Engine (DOCKER_HOST names another than the usual one).
set -euo pipefail

name=${1:-rollstream-base:local}
packages=${PACKAGES:-python3,ca-certificates,libgomp1,libseccomp2,bubblewrap}

fail() { echo "base image: $1" >&2; exit 1; }

[ "$(id -u)" = 0 ] || fail "only root can run debootstrap"
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
command -v docker >/dev/null || fail "the docker command is missing: apt-get install docker.io (docker-cli on newer systems)"
docker version >/dev/null 2>&1 || fail "no Docker Engine answers at ${DOCKER_HOST:-its usual socket}"

suite=${SUITE:-$(. /etc/os-release && echo "${VERSION_CODENAME:-}")}
[ -n "$suite" ] || fail "this system does not name its suite: set SUITE and MIRROR"

mirror=${MIRROR:-$("$(dirname "$0")/mirror.sh" "$suite")}
[ -n "$mirror" ] || fail "no apt source of $suite on this system: set MIRROR"

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

echo "== base image $name: $suite with $packages from $mirror"
debootstrap --variant=minbase --include="$packages" "$suite" "$work/root" "$mirror" 2>&1 | awk '
  /^(E|W): / { print "   " $0 }
  /^I: (Retrieving|Validating|Extracting|Unpacking|Configuring)/ { if (++n % 40 == 0) print "   " n " steps: " substr($0, 4); fflush() }'
rm -rf "$work"/root/var/cache/apt/archives/*.deb "$work"/root/var/lib/apt/lists/* "$work"/root/var/log/* \
  "$work"/root/usr/share/doc/* "$work"/root/usr/share/man/* "$work"/root/usr/share/locale/*

echo "   importing $(du -sm "$work/root" | cut -f1) MB"
tar --directory "$work/root" --sort=name --mtime=@0 --numeric-owner --create . |
  docker import --change 'CMD ["python3"]' --change "LABEL rollstream.base=$suite" - "$name" >/dev/null
echo "== $name is there"
