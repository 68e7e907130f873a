"""The recorder: keeps every topic in the object store, byte for byte, so that nothing is lost when retention ends."""
