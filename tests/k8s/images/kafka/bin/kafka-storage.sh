#!/bin/bash
export KAFKA_OPTS="-XX:TieredStopAtLevel=1 ${KAFKA_OPTS:-}"
exec "$(dirname "$0")/kafka-run-class.sh" kafka.tools.StorageTool "$@"
