#!/bin/bash
# CLASS ARGS…: runs a class of Kafka. KAFKA_HEAP_OPTS, KAFKA_OPTS and LOG_DIR mean what they mean in Kafka's own image.
home=$(dirname "$(dirname "$(readlink -f "$0")")")
exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" ${KAFKA_HEAP_OPTS:--Xmx256m} -XX:+UseSerialGC -Dkafka.logs.dir="${LOG_DIR:-/tmp}" \
  -Dlog4j2.configurationFile="$home/config/log4j2.properties" ${KAFKA_OPTS:-} -cp "$home/libs/*" "$@"
