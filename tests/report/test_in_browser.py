"""The page in a browser."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fedro.report import write_report
from fedro.report.series import ReportData
from report_cases import ATTACKS, HOSTILE, RULES, SEEDS, lines_of

if TYPE_CHECKING:
    from playwright.sync_api import Page


def opened(page: "Page", path: Path) -> "Page":
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-drawn=all]", state="attached", timeout=60_000)
    return page


def traces(page: "Page", key: str) -> list[dict[str, Any]]:
    """What Plotly holds of a chart's panel."""
    found: list[dict[str, Any]] = page.evaluate(
        """key => document.getElementById(key).data.map(t => ({
            name: t.meta.name, role: t.meta.role, visible: t.visible !== false,
            x: [...t.x], y: [...t.y], z: t.z, color: t.line?.color ?? t.marker?.color,
        }))""",
        key,
    )
    return found


@pytest.mark.slow
def test_browser_shows_the_numbers_of_the_folders(
    page: "Page", report: Path, data: ReportData
) -> None:
    opened(page, report)
    for number, attack in enumerate(ATTACKS):
        for trace in traces(page, f"accuracy-{number}"):
            if trace["role"] != "line":
                continue
            every = [lines_of(data, trace["name"], attack, seed) for seed in SEEDS]
            finals = [
                [line["score"]["accuracy"] for line in rounds if "score" in line]
                for rounds in every
            ]
            assert trace["x"] == [1, 3]
            assert trace["y"] == pytest.approx([sum(row) / 2 for row in zip(*finals, strict=True)])
    for row, rule in enumerate(RULES):
        finals_of = [
            sum(lines_of(data, rule, attack, seed)[-1]["final"]["accuracy"] for seed in SEEDS) / 2
            for attack in ATTACKS
        ]
        assert traces(page, "rule-attack-0")[0]["z"][row] == pytest.approx(finals_of)
    drawn = page.locator(".plot .main-svg").count()
    assert drawn >= page.locator(".plot").count() > 10
    entries = sum(len(line["missing"]) for line in lines_of(data, "mean", "silent", 0))
    page.locator("#replies summary").click()
    rows = [row.split("\t") for row in page.locator("#replies details tr").all_inner_texts()]
    assert sum(int(row[6]) for row in rows if row[:2] == ["mean · silent", "0"]) == entries
    assert entries > 0


@pytest.mark.slow
def test_browser_legend_hides_and_shows(page: "Page", report: Path) -> None:
    opened(page, report)
    key = page.locator('.legend[data-chart="accuracy"] button', has_text="trimmed_mean")

    def shown() -> set[str]:
        panels = [trace for n in range(3) for trace in traces(page, f"accuracy-{n}")]
        return {trace["name"] for trace in panels if trace["visible"]}

    assert shown() == set(RULES)
    key.click()
    assert shown() == {"mean"}
    assert key.get_attribute("aria-pressed") == "false"
    assert {trace["visible"] for trace in traces(page, "loss-0")} == {True}  # another chart
    key.click()
    assert shown() == set(RULES)
    key.dblclick()
    assert shown() == {"nnm | trimmed_mean"}
    key.dblclick()
    assert shown() == set(RULES)


@pytest.mark.slow
def test_browser_dark_and_light(page: "Page", small_report: Path) -> None:
    def colors() -> tuple[str, str, str]:
        ink, paper = page.evaluate(
            "[document.getElementById('byzantine-clients-0').layout.font.color,"
            " getComputedStyle(document.body).backgroundColor]"
        )
        level = [
            t["color"] for t in traces(page, "byzantine-clients-0") if t["name"] == "b̂, tolerated"
        ]
        return ink, paper, level[0]

    page.emulate_media(color_scheme="light")
    opened(page, small_report)
    light = colors()
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(300)
    dark = colors()
    assert all(a != b for a, b in zip(light, dark, strict=True))
    page.emulate_media(color_scheme="light")
    page.wait_for_timeout(300)
    assert colors() == light


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_browser_nothing_is_wider_than_the_screen(page: "Page", report: Path, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    opened(page, report)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    wide = page.evaluate(
        """[...document.querySelectorAll("main *")]
           .filter(e => !e.closest(".scroll, .table, pre"))
           .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
           .map(e => e.outerHTML.slice(0, 80))"""
    )
    assert wide == []
    page.set_viewport_size({"width": 700, "height": 800})  # the phone is turned
    page.wait_for_timeout(600)
    assert 600 < page.evaluate("document.getElementById('time-0').layout.width") < 700


@pytest.mark.slow
def test_browser_runs_nothing_of_what_runs_say(page: "Page", spoilt: Path, tmp_path: Path) -> None:
    said: list[str] = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    opened(page, write_report([spoilt], tmp_path / "r.html").files[0])
    assert said == []
    assert page.locator("img[src=x]").count() == 0
    assert HOSTILE in page.locator("#replies").inner_text()
    assert "<script>" in page.locator("#choices-0").inner_text()  # as Plotly shows it: a text


@pytest.mark.slow
def test_browser_copies_a_configuration(page: "Page", small_report: Path, one: Path) -> None:
    opened(page, small_report)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#repeat summary").first.click()
    page.locator("#repeat button.copy").first.click()
    page.locator("#repeat button.copy", has_text="copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == (one / "config.toml").read_text()


@pytest.mark.slow
def test_browser_prints_light_and_as_wide_as_paper(page: "Page", small_report: Path) -> None:
    page.emulate_media(color_scheme="dark")
    opened(page, small_report)
    page.evaluate(
        """addEventListener("beforeprint", () => {
            const layout = document.getElementById("time-0").layout;
            window.printed = [layout.font.color, layout.width];
        })"""
    )
    before = page.evaluate("document.getElementById('time-0').layout.width")
    assert page.pdf(format="A4").startswith(b"%PDF")
    ink, width = page.evaluate("window.printed")
    assert (ink, width) == ("#1c2024", 680)
    assert page.evaluate("document.getElementById('time-0').layout.width") == before > 680
