# A real Apache Kafka for tests, laid out as the project's own image: /opt/kafka with bin, config and libs. Nothing but a
# data folder and /tmp is written. The context is made by build.sh.
ARG BASE
FROM $BASE
COPY java /opt/java
COPY kafka /opt/kafka
ENV JAVA_HOME=/opt/java PATH=/opt/java/bin:/opt/kafka/bin:/usr/bin:/bin LOG_DIR=/tmp HOME=/tmp
WORKDIR /opt/kafka
USER 10001:10001
EXPOSE 9092
CMD ["/opt/kafka/bin/kafka-server-start.sh", "/opt/kafka/config/server.properties"]
