#!/bin/bash
# FILE [--override NAME=VALUE]…: runs a node.
export KAFKA_HEAP_OPTS=${KAFKA_HEAP_OPTS:--Xms128m -Xmx512m}
exec "$(dirname "$0")/kafka-run-class.sh" kafka.Kafka "$@"
