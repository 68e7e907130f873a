"""One module per family of requests: protocol messages in, protocol messages out."""
