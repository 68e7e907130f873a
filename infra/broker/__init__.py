"""An embedded, durable, single-node broker that speaks the Kafka protocol on loopback (see README.md)."""
