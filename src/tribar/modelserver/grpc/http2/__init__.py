"""The server's side of HTTP/2 without TLS, with prior knowledge (RFC 9113), as far as gRPC needs it."""
