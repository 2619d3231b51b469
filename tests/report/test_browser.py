"""The tests' browser sees what a page does wrong, and stays out of the way of other tests."""

import asyncio
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # its tests train models or start processes

pytest_plugins = ["pytester"]

BAD = {
    "network": "<img src='https://example.org/x.png'>",
    "script": "<script>undefined_name</script>",
    "console": "<script>console.error('no')</script>",
    "promise": "<script>Promise.reject(new Error('no'))</script>",
}


def test_pages_run_scripts(page, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("<p></p><script>document.querySelector('p').textContent = 1 + 1</script>")
    page.goto(file.as_uri())
    assert page.inner_text("p") == "2"


def test_other_event_loops_are_not_disturbed() -> None:
    assert asyncio.run(asyncio.sleep(0, result=1)) == 1


@pytest.mark.slow
def test_what_a_page_does_wrong_fails_the_test(page, pytester: pytest.Pytester) -> None:
    """With a browser of its own: the one of `page` only says whether there is one."""
    pytester.makeconftest("from browser import chromium, page")
    for name, text in BAD.items():
        pytester.makefile(".html", **{name: text})
    pytester.makepyfile(
        f"""
        import asyncio
        import pathlib
        import pytest

        @pytest.mark.parametrize("name", {list(BAD)})
        def test_page(page, name):
            page.goto(pathlib.Path(name + ".html").absolute().as_uri())

        def test_nothing_wrong(page):
            page.set_content("<p>fine</p>")

        def test_loop():
            asyncio.run(asyncio.sleep(0))
        """
    )
    here = f"pythonpath={Path(__file__).parents[1] / 'helpers'}"
    done = pytester.runpytest_subprocess("-W", "error", "-o", here)
    done.assert_outcomes(passed=len(BAD) + 2, errors=len(BAD))
