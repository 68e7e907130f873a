"""Whole runs on a real Apache Kafka: one node, three nodes that are killed, logins with least rights, TLS."""
