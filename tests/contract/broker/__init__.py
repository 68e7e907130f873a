"""One suite over the embedded broker and, with KAFKA_BOOTSTRAP set, any Apache Kafka: a difference is our fault."""
