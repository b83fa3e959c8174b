"""Benchmarks over the network: brokers as processes on loopback, and a load generator that checks every response."""
