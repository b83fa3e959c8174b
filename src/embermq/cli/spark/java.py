"""`embermq spark java`: which Java Spark is started with. Starts Java itself, to ask it, and no Spark."""

import click

from embermq.cli.output import NamedValue, NamedValues, Output, output_option, show_yes
from embermq.spark.runtime import find_java


@click.command()
@click.option("--home", is_flag=True, help="Print only the directory: export JAVA_HOME=$(embermq spark java --home)")
@output_option
def java(output: Output, home: bool) -> None:
    """Show the Java that Spark is started with.

    \b
    embermq spark java
    export JAVA_HOME=$(embermq spark java --home)
    """
    found = find_java()
    if home and not output.as_json:
        click.echo(str(found.home))
        return
    output.show(
        NamedValues(
            "java",
            "",
            [
                NamedValue("home", "JAVA_HOME", str(found.home)),
                NamedValue("version", "version", found.version),
                NamedValue("origin", "found by", found.origin),
                NamedValue("real_home", "Java itself", str(found.real_home)),
                NamedValue("is_shimmed", "started by a script of ours", found.is_shimmed, show_yes),
            ],
        )
    )
