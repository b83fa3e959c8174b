"""The HTML page of a job: complete, escaped, self-contained, and looked at by a browser where there is one."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from embermq.errors import OptionInvalid
from embermq.spark.report import (
    Bar,
    Bars,
    DamageMap,
    Fact,
    Percentiles,
    Report,
    Section,
    Series,
    Spread,
    Stretch,
    Table,
    render,
    write_report,
)
from embermq.spark.report.charts import amount, draw

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000
VOID = {"meta", "br"}


class Balanced(HTMLParser):
    """Every element that opens closes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def checked(html: str) -> str:
    """The texts of a page whose elements are balanced."""
    parser = Balanced()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return " ".join(parser.texts)


def example() -> Report:
    return Report(
        "Audit of orders", "/var/store", START_MS,
        [Fact("records", "1,204"), Fact("damaged", "2", "64 B", "bad"), Fact("sums", "all right", mood="good")],
        [
            Section("Volume", [
                Series("Messages", START_MS, HOUR_MS, [float(n % 24) for n in range(72)]),
                Bars("Topics by size", [Bar("orders", 2.5e9), Bar("returns", 1e6, "8 queues")], "bytes"),
            ]),
            Section("Delay", [Percentiles("Born to stored", [Spread("orders", 2, 9, 250, 4000)])]),
            Section("Log", [
                DamageMap("The log", 0, 4096, [0, 1024, 2048, 3072], [Stretch(1000, 1100, "bad sum")]),
                Table("Findings", ["place", "fault"], [[1000, "bad sum"], [None, "<none>"]]),
            ], "What the log looks like."),
        ],
    )  # fmt: skip


def test_a_page_holds_everything_and_fetches_nothing() -> None:
    html = render(example())
    texts = checked(html)
    for said in ("Audit of orders", "/var/store", "1,204", "orders", "2.3 GiB", "8 queues", "bad sum", "p99 250 ms"):
        assert said in texts
    assert not re.search(r"(src|href)=|url\(|<script|@import", html)
    assert "default-src 'none'" in html
    assert "prefers-color-scheme: dark" in html


def test_texts_of_messages_stay_texts() -> None:
    evil = '<img src=x onerror="alert(1)">&'
    report = Report(
        evil, evil, START_MS, [Fact(evil, evil, evil)],
        [Section(evil, [
            Series(evil, START_MS, 1000, [1.0]), Bars(evil, [Bar(evil, 1, evil)]),
            Percentiles(evil, [Spread(evil, 1, 2, 3, 4)]), DamageMap(evil, 0, 10, [0], [Stretch(0, 5, evil)]),
            Table(evil, [evil], [[evil]]),
        ], evil)],
    )  # fmt: skip
    html = render(report)
    assert "<img" not in html
    assert evil in checked(html)


@pytest.mark.parametrize(
    "figure",
    [
        Series("s", START_MS, 1000, []),
        Series("s", START_MS, 1000, [0.0, 0.0]),
        Bars("b", []),
        Percentiles("p", []),
        DamageMap("d", 7, 7, [], []),
        Table("t", ["a"], []),
    ],
)
def test_nothing_to_show_is_said(figure: Series | Bars | Percentiles | DamageMap | Table) -> None:
    assert 'class="none"' in draw(figure)


def test_many_columns_are_added_up_and_none_is_lost() -> None:
    html = draw(Series("s", START_MS, 1000, [1.0] * 10_000))
    assert html.count("<rect") <= 240
    each = [int(found) for found in re.findall(r": (\d+)</title>", html)]
    assert sum(each) == 10_000
    assert "each column 42 s" in html


def test_long_lists_are_cut_and_say_so() -> None:
    bars = draw(Bars("b", [Bar(f"t{n}", n) for n in range(1, 51)], shown_max=20))
    assert bars.count('class="row"') == 20
    assert "and 30 more" in bars
    assert "t50" in bars
    assert "t30<" not in bars
    rows = draw(Table("t", ["n"], [[n] for n in range(300)], shown_max=200))
    assert rows.count("<tr>") == 201
    assert "and 100 more" in rows


def test_damage_is_marked_where_it_is() -> None:
    html = draw(DamageMap("d", 0, 1600, [0, 800], [Stretch(400, 401, "flipped bit")]))
    cells = re.findall(r'<i class="([a-z ]*)"', html)
    assert [number for number, names in enumerate(cells) if "bad" in names] == [40]
    assert [number for number, names in enumerate(cells) if "file" in names] == [80]
    assert "flipped bit" in html
    assert "no damage" in draw(DamageMap("d", 0, 1600, [0], []))


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "bytes", "0 B"), (1023, "bytes", "1023 B"), (1536, "bytes", "1.5 KiB"), (3 << 40, "bytes", "3.0 TiB"),
        (12, "ms", "12 ms"), (1500, "ms", "1.5 s"), (600_000, "ms", "10 min"),
        (1234, "count", "1,234"), (2_500_000, "count", "2.5 M"),
    ],
)  # fmt: skip
def test_amounts_have_units(value: float, unit: str, text: str) -> None:
    assert amount(value, unit) == text  # type: ignore[arg-type]


def test_a_page_is_written_whole(tmp_path: Path) -> None:
    path = write_report(example(), tmp_path / "report.html")
    assert path.read_text() == render(example())
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    with pytest.raises(OptionInvalid, match="report"):
        write_report(example(), tmp_path / "missing" / "report.html")


@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_shows_it_without_scrolling_sideways(tmp_path: Path, width: int) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium here")
    page, picture = write_report(example(), tmp_path / "report.html"), tmp_path / "report.png"
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        f"--user-data-dir={tmp_path}/profile", f"--window-size={width},1400", f"--screenshot={picture}", page.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000  # An empty page is a few kilobytes.
