"""Benchmark of precisions: speed, latency, share of the matrix rate, memory and quality."""
