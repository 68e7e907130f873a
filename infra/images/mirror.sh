#!/bin/bash
# Prints the address of this system's own apt mirror for a suite: the first source of exactly that suite with a component
# main, in either of apt's two formats. Prints nothing where there is none.
#
#   infra/images/mirror.sh SUITE
set -euo pipefail
shopt -s nullglob
suite=$1

sources() {
  local deb822=(/etc/apt/sources.list.d/*.sources) lists=(/etc/apt/sources.list /etc/apt/sources.list.d/*.list)
  for file in "${deb822[@]}"; do
    awk -v suite="$suite" '
      function tell() { if (uri != "" && has && main) print uri; uri = ""; has = 0; main = 0 }
      /^[[:space:]]*$/ { tell() }
      /^URIs:/ { uri = $2 }
      /^Suites:/ { for (i = 2; i <= NF; i++) if ($i == suite) has = 1 }
      /^Components:/ { for (i = 2; i <= NF; i++) if ($i == "main") main = 1 }
      END { tell() }' "$file"
  done
  for file in "${lists[@]}"; do
    if [ -f "$file" ]; then
      sed 's/\[[^]]*\]//' "$file" | awk -v suite="$suite" '$1 == "deb" && $3 == suite && / main/ { print $2 }'
    fi
  done
}
found=$(sources)
echo "${found%%$'\n'*}"
