"""The HTML page of a job: complete, escaped, self-contained, and looked at by a browser where there is one."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from embermq.errors import OptionInvalid
from embermq.spark.report import (
    Bar,
    Bars,
    DamagedStretch,
    DamageMap,
    KeyFigure,
    Percentiles,
    ReportPage,
    Section,
    Spread,
    Steps,
    Table,
    TimeSeries,
    render,
    write_report,
)
from embermq.spark.report.charts import amount, draw
from embermq.spark.report.times import usual_span
from tests.support.browser import laid_out, need_browser, screenshot

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000
VOID = {"meta", "br", "wbr"}


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


def example() -> ReportPage:
    return ReportPage(
        "Audit of orders",
        "/var/store",
        START_MS,
        [
            KeyFigure("records", "1,204"),
            KeyFigure("damaged", "2", "64 B", "bad"),
            KeyFigure("sums", "all right", mood="good"),
        ],
        [
            Section(
                "Volume",
                [
                    TimeSeries("Messages", START_MS, HOUR_MS, [float(n % 24) for n in range(72)]),
                    Bars("Topics by size", [Bar("orders", 2.5e9), Bar("returns", 1e6, "8 queues")], "bytes"),
                ],
            ),
            Section("Delay", [Percentiles("Born to stored", [Spread("orders", 2, 9, 250, 4000)])]),
            Section(
                "Log",
                [
                    DamageMap("The log", 0, 4096, [0, 1024, 2048, 3072], [DamagedStretch(1000, 1100, "bad sum")]),
                    Table("Findings", ["place", "fault"], [[1000, "bad sum"], [None, "<none>"]]),
                    Table("Topics", ["topic", "messages", "bytes"], [["t" * 127, 12_345_678, 9_876_543_210]]),
                    Table("Files", ["file", "what", "remedy"], [["a/" * 40, "some words " * 8, "x" * 90]]),
                ],
                "What the log looks like.",
            ),
        ],
    )


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
    report = ReportPage(
        evil,
        evil,
        START_MS,
        [KeyFigure(evil, evil, evil)],
        [
            Section(
                evil,
                [
                    TimeSeries(evil, START_MS, 1000, [1.0]),
                    Bars(evil, [Bar(evil, 1, evil)]),
                    Steps(evil, [evil], [1.0]),
                    Percentiles(evil, [Spread(evil, 1, 2, 3, 4)]),
                    DamageMap(evil, 0, 10, [0], [DamagedStretch(0, 5, evil)]),
                    Table(evil, [evil], [[evil]]),
                ],
                evil,
            )
        ],
    )
    html = render(report)
    assert "<img" not in html
    assert evil in checked(html)


@pytest.mark.parametrize(
    "figure",
    [
        TimeSeries("s", START_MS, 1000, []),
        TimeSeries("s", START_MS, 1000, [0.0, 0.0]),
        Steps("s", [], []),
        Steps("s", ["batch 0"], [0.0]),
        Bars("b", []),
        Percentiles("p", []),
        DamageMap("d", 7, 7, [], []),
        Table("t", ["a"], []),
    ],
)
def test_nothing_to_show_is_said(figure: TimeSeries | Steps | Bars | Percentiles | DamageMap | Table) -> None:
    assert 'class="none"' in draw(figure)


def test_many_columns_are_added_up_and_none_is_lost() -> None:
    html = draw(TimeSeries("s", START_MS, 1000, [1.0] * 10_000))
    assert html.count("<rect") <= 240
    each = [int(found) for found in re.findall(r": (\d+)</title>", html)]
    assert sum(each) == 10_000
    assert "each column 42 s" in html


def test_bars_are_by_value_or_in_their_order() -> None:
    bars = [Bar("small", 1), Bar("large", 3), Bar("huge", 2)]
    by_value, in_order = draw(Bars("b", bars)), draw(Bars("b", bars, in_order=True))
    assert by_value.index("large") < by_value.index("huge") < by_value.index("small")
    assert in_order.index("small") < in_order.index("large") < in_order.index("huge")


def test_long_lists_are_cut_and_say_so() -> None:
    bars = draw(Bars("b", [Bar(f"t{n}", n) for n in range(1, 51)], shown_max=20))
    assert bars.count('class="row"') == 20
    assert "and 30 more" in bars
    assert "t50" in bars
    assert "t30<" not in bars
    rows = draw(Table("t", ["n"], [[n] for n in range(300)], shown_max=200))
    assert rows.count("<tr>") == 201
    assert "and 100 more" in rows


def marks(html: str) -> list[tuple[float, float]]:
    """Begin and width of each damaged place, in thousandths of its strip."""
    found = re.findall(r'<rect class="bad" x="([0-9.]+)" y="0" width="([0-9.]+)"', html)
    return [(float(x), float(width)) for x, width in found]


def test_damage_is_marked_where_it_is() -> None:
    html = draw(
        DamageMap("d", 0, 1600, [0, 800], [DamagedStretch(400, 401, "flipped bit"), DamagedStretch(700, 1000, "zeros")])
    )
    # In the log; then in each of its two files.
    assert marks(html) == [(250, 3), (437.5, 187.5), (500, 3), (875, 125), (0, 250)]
    assert re.findall(r'<line x1="([0-9.]+)"', html) == ["500.00"]
    assert "flipped bit" in html
    assert "2 damaged places, 301 B; lines are file borders" in html
    texts = checked(html)
    assert "00000000000000000000" in texts
    assert "101 B" in texts
    assert "00000000000000000800" in texts
    assert "200 B" in texts
    whole = draw(DamageMap("d", 0, 1600, [0], []))
    assert "no damage" in whole
    assert marks(whole) == []
    assert 'class="files"' not in whole


def test_damage_at_the_very_end_is_seen() -> None:
    ((x, width),) = marks(draw(DamageMap("d", 0, 1 << 40, [], [DamagedStretch((1 << 40) - 1, 1 << 40, "cut")])))[:1]
    assert x + width == 1000


def test_a_log_of_very_many_files() -> None:
    segments = [n << 20 for n in range(5000)]
    damaged = [DamagedStretch((n << 20) + 5, (n << 20) + 10, "bad crc") for n in range(0, 5000, 100)]
    html = draw(DamageMap("d", 0, 5000 << 20, segments, damaged))
    assert "<line" not in html  # Borders would hide the log.
    assert html.count('class="row"') == 24
    assert "and 26 more" in html


def test_paths_break_behind_slashes_and_words_not_at_all() -> None:
    html = draw(Table("t", ["a", "b", "c"], [["index/<2026>", "fault", "run `a/b c/d`"]]))
    assert '<td class="path">index/<wbr>&lt;2026&gt;</td><td class="fault">fault</td>' in html
    assert "`a/b c/d`" in html


def test_steps_show_the_last_ones() -> None:
    html = draw(Steps("lag", [f"batch {n}" for n in range(300)], [float(n) for n in range(300)], "bytes/s"))
    assert html.count("<rect") == 240
    assert "the last 240 of 300" in html
    assert "batch 299: 299 B/s" in html
    assert "batch 59:" not in html


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "bytes", "0 B"),
        (1023, "bytes", "1023 B"),
        (1536, "bytes", "1.5 KiB"),
        (3 << 40, "bytes", "3.0 TiB"),
        (12, "ms", "12 ms"),
        (1500, "ms", "1.5 s"),
        (600_000, "ms", "10 min"),
        (7_200_000, "ms", "2 h"),
        (1_794_867_780_000, "ms", "20,774 d"),
        (-600_000, "ms", "-10 min"),
        (1234, "count", "1,234"),
        (2_500_000, "count", "2.5 M"),
        (1536, "bytes/s", "1.5 KiB/s"),
    ],
)
def test_amounts_have_units(value: float, unit: str, text: str) -> None:
    assert amount(value, unit) == text  # type: ignore[arg-type]


def test_a_page_is_written_whole(tmp_path: Path) -> None:
    path = write_report(example(), tmp_path / "report.html")
    assert path.read_text() == render(example())
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    for place, words in ((tmp_path / "missing" / "report.html", "no directory"), (tmp_path, "this is a directory")):
        with pytest.raises(OptionInvalid, match=words):
            write_report(example(), place)


def test_a_time_that_is_wrong_by_years_does_not_stretch_a_chart() -> None:
    assert usual_span([]) == (0, 0)
    assert usual_span([7]) == (7, 8)
    assert usual_span([9, 8, 12]) == (8, 13)
    assert usual_span([0, *range(1_000_000, 1_000_100), 1 << 40]) == (1_000_000, 1_000_100)


@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_shows_it_without_scrolling_sideways(tmp_path: Path, width: int) -> None:
    need_browser()
    page = write_report(example(), tmp_path / "report.html")
    layout = laid_out(page, width)
    assert layout.client_width == width
    assert layout.scroll_width <= layout.client_width
    assert (layout.tables, layout.cut_tables) == (3, ())
    assert layout.text_length > 500
    assert screenshot(page, width).startswith(b"\x89PNG")
