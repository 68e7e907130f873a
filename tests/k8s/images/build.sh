#!/bin/bash
# Builds the images of Kafka and S3 for tests, rollstream-kafka:test and rollstream-s3:test, from the distributions in SHARED.
#
#   tests/k8s/images/build.sh        BASE=IMAGE (rollstream-base:local), SHARED=FOLDER (../shared), JAVA=HOME of a Java 17 or newer
#
# Kafka's Java is the one of this machine, without what only compiles: both are of the same Debian.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
shared=${SHARED:-$root/../shared}
base=${BASE:-rollstream-base:local}
fail() { echo "test images: $1" >&2; exit 1; }

docker image inspect "$base" >/dev/null 2>&1 || fail "there is no $base: infra/images/base.sh $base"
[ -d "$shared/kafka/libs" ] && [ -f "$shared/s3/versitygw.xz" ] || fail "no kafka and s3 in $shared: set SHARED"
java=${JAVA:-}
if [ -z "$java" ]; then
  command -v java >/dev/null || fail "no java on this machine: apt-get install openjdk-17-jre-headless"
  java=$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")
fi

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
build() { # NAME FOLDER DOCKERFILE
  local run=(docker build --quiet --network none --build-arg "BASE=$base" --file "$here/$3" --tag "$1" "$2")
  DOCKER_BUILDKIT=0 "${run[@]}" >/dev/null 2>&1 || "${run[@]}" >/dev/null # the older builder needs no plugin
  printf '%-32s %8s MB\n' "$1" "$(docker image inspect --format '{{.Size}}' "$1" | awk '{ printf "%.0f", $1 / 1e6 }')"
}

mkdir -p "$work/kafka/java" "$work/kafka/kafka" "$work/s3"
# Debian keeps Java's configuration behind links; what only compiles, draws or sounds stays here.
tar --create --directory "$java" --dereference --exclude='lib/src.zip' --exclude='lib/ct.sym' --exclude='lib/libawt*' \
  --exclude='lib/libfont*' --exclude='lib/libmlib*' --exclude='lib/liblcms*' --exclude='lib/libsplash*' --exclude='lib/libjsound*' \
  bin/java bin/keytool lib conf release | tar --extract --directory "$work/kafka/java"
cp -r "$here/kafka/bin" "$here/kafka/config" "$shared/kafka/libs" "$work/kafka/kafka/"
chmod -R u+w,a+rX "$work/kafka"
build rollstream-kafka:test "$work/kafka" kafka.Dockerfile

xz -dc "$shared/s3/versitygw.xz" >"$work/s3/versitygw"
chmod 755 "$work/s3/versitygw"
build rollstream-s3:test "$work/s3" s3.Dockerfile
