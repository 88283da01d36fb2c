"""The model server: Triton's contract for any model. HTTP and gRPC are two thin translations of one ``Service``."""
