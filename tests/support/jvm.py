"""How the JVMs of tests are started."""

import os

# Short jobs end before the optimising compiler pays: without it, and with the plainest collector, a JVM takes less
# than half of the processor time.
SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def shorten_every_jvm() -> None:
    """Every driver that this process or a child of it starts is short-lived, also where no setting can say so: the
    demo, the examples, the benchmarks. Spark's own scripts read these variables, and nothing is printed about them."""
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
        given = os.environ.get(name, "")
        if SHORT_LIVED_JVM not in given:
            os.environ[name] = f"{SHORT_LIVED_JVM} {given}".strip()
