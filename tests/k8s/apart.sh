#!/bin/sh
# Holds the namespaces of one cluster until it is ended: its own view of cgroups, mounts and network names, so that two
# clusters on one machine do not take each other's pods for orphans, and everything of this one can be found again.
#
#   apart.sh NAME      NAME: of the cgroup that everything of the cluster belongs to; prints "ready" when it holds
set -eu
name=$1
if [ -d /sys/fs/cgroup/memory ]; then
  for place in /sys/fs/cgroup/*; do
    [ -f "$place/cgroup.procs" ] && [ ! -L "$place" ] && [ ! -f "$place/cgroup.controllers" ] || continue
    mkdir "$place/$name"
    if [ -f "$place/cpuset.cpus" ]; then
      cat "$place/cpuset.cpus" >"$place/$name/cpuset.cpus"
      cat "$place/cpuset.mems" >"$place/$name/cpuset.mems"
      echo 1 >"$place/$name/cgroup.clone_children"
    fi
    # Processes of a group share what one process outside of it would get: it is many of them.
    [ ! -f "$place/cpu.shares" ] || echo 20480 >"$place/$name/cpu.shares"
    echo $$ >"$place/$name/cgroup.procs"
  done
fi
exec unshare --mount --cgroup --propagation private sh -euc '
  awk "\$3 == \"cgroup\" {print \$2, \$4}" /proc/mounts | while read -r at options; do
    kind=$(echo "$options" | tr , "\n" | grep -vxE "rw|ro|nosuid|nodev|noexec|relatime|xattr|clone_children" | paste -sd, -)
    case $kind in name=*) kind=none,$kind ;; esac
    umount "$at" && mount -t cgroup -o "$kind" cgroup "$at"
  done
  mkdir -p /run/netns && mount -t tmpfs netns /run/netns
  echo ready
  exec sleep infinity'
