"""`embermq spark`: what a Spark job would do with a store, and which Java it would run on. Starts no JVM.

pyspark and what stands on it are imported inside the commands: who has no Spark still gets `--help`, and a line
that says what to install.
"""

import click

import embermq.spark
from embermq.cli.output import Fact, Facts, Output, output_option, show_yes


@click.group()
@click.pass_context
def spark(context: click.Context) -> None:
    """See how Spark would read a store, and with which Java."""
    try:
        embermq.spark.require_extra()
    except ModuleNotFoundError as missing:
        click.echo(f"embermq: {missing}", err=True)
        context.exit(1)


@spark.command()
@click.option("--home", is_flag=True, help="Only the directory: export JAVA_HOME=$(embermq spark java --home)")
@output_option
def java(output: Output, home: bool) -> None:
    """Show the Java that Spark is started with."""
    found = embermq.spark.find_java()
    if home and not output.as_json:
        click.echo(str(found.home))
        return
    output.show(
        Facts(
            "java",
            "",
            [
                Fact("home", "JAVA_HOME", str(found.home)),
                Fact("version", "version", found.version),
                Fact("origin", "found by", found.origin),
                Fact("real_home", "Java itself", str(found.real_home)),
                Fact("is_shimmed", "started by a script of ours", found.is_shimmed, show_yes),
            ],
        )
    )
