"""How the JVMs of tests are started."""

# Short jobs end before the optimising compiler pays: without it, and with the plainest collector, a JVM takes less
# than half of the processor time.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
