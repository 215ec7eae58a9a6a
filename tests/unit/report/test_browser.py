"""The pages in a real browser, from disk: wide, on a phone, by keyboard, in print, full size."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Browser, chromium
from png import read_png

pytestmark = pytest.mark.skipif(
    not CHROMIUM.exists(), reason="no /usr/bin/chromium on this machine"
)

Report = tuple[bytes, dict[str, bytes]]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def at(
    full_report: tuple[bytes, dict[str, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with the report and nothing else."""
    return laid_out(full_report[1], tmp_path_factory)


@pytest.fixture(scope="module")
def drift_at(drift_files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of study ``drift``."""
    return laid_out(drift_files, tmp_path_factory)


@pytest.fixture(scope="module", params=["eps", "drift"])
def any_at(request: pytest.FixtureRequest, at: Path, drift_at: Path) -> Path:
    """Every study's page."""
    return at if request.param == "eps" else drift_at


def laid_out(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder / "index.html"


def open_whole(browser: Browser, page: Path, *, width: int, phone: bool = False) -> None:
    """The page with everything unfolded that is folded away."""
    browser.open(page, width=width, phone=phone)
    browser.ask("document.querySelectorAll('details').forEach(d => { d.open = true })")


@pytest.mark.parametrize(("width", "phone"), [(1280, False), (390, True)])
def test_the_page_renders_from_disk_and_asks_for_nothing_else(
    browser: Browser, at: Path, width: int, phone: bool
) -> None:
    browser.open(at, width=width, height=3000, phone=phone)
    assert browser.requests() == [at.as_uri()]
    assert browser.complaints() == []
    assert browser.ask("document.scripts.length") == 0
    assert browser.ask("document.styleSheets.length") == 1
    pixels = read_png(browser.picture())[:, :, :3].astype(int)
    assert pixels.shape[:2] == (3000, width)
    dark = (pixels.sum(axis=2) < 200).mean()
    assert 0.002 < dark < 0.3, "no text, or nothing else"
    # The heat map's strongest orange is there, so the tables were drawn and coloured.
    assert (np.abs(pixels - [190, 84, 8]).sum(axis=2) < 12).sum() > 200


@pytest.mark.parametrize(("width", "phone"), [(1280, False), (390, True), (320, True)])
def test_nothing_runs_over_the_edge(
    browser: Browser, any_at: Path, width: int, phone: bool
) -> None:
    open_whole(browser, any_at, width=width, phone=phone)
    assert browser.ask("document.documentElement.scrollWidth") == width
    over = browser.ask(
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, .skip, nav')"
        f" && e.getBoundingClientRect().right > {width} + 1)"
        ".map(e => e.tagName + '.' + e.getAttribute('class') + ' ' + e.textContent.slice(0, 40))"
        ".slice(0, 5)"
    )
    assert over == []


def test_the_keyboard_reaches_a_cell_and_reads_all_of_it(browser: Browser, at: Path) -> None:
    browser.open(at, width=1280)
    seen = []
    for _ in range(40):
        browser.tab()
        seen.append(browser.ask("document.activeElement.tagName"))
        if seen[-1] == "TD":
            break
    assert seen[0] == "A", "first the link that skips to the report"
    assert browser.ask("document.activeElement.closest('table').className") == "heat"
    title = browser.ask("document.activeElement.title")
    assert "persona_software_engineer → persona_software_engineer" in title
    sheet = browser.ask("getComputedStyle(document.activeElement, '::after').content")
    assert "interval" in sheet
    assert browser.ask("getComputedStyle(document.activeElement, '::after').position") == "fixed"
    shown = browser.ask("parseFloat(getComputedStyle(document.activeElement, '::after').height)")
    assert shown > 60, "the sheet at the foot of the window is there"


def test_skip_links_show_themselves_and_pass_the_cells(browser: Browser, at: Path) -> None:
    browser.open(at, width=1280)
    browser.tab()
    box = "JSON.stringify(document.activeElement.getBoundingClientRect())"
    assert browser.ask(f"JSON.parse({box}).left") >= 0
    browser.ask("document.querySelector('section#tensor-1 .skip').focus()")
    assert browser.ask("document.activeElement.getBoundingClientRect().left") >= 0
    browser.press("Enter", 13)
    browser.tab()
    where = browser.ask(
        "document.querySelector('#after-tensor-1')"
        ".compareDocumentPosition(document.activeElement) & Node.DOCUMENT_POSITION_FOLLOWING"
    )
    assert where, "the next stop lies behind the map"


def test_every_box_that_scrolls_can_be_reached_by_keyboard(browser: Browser, any_at: Path) -> None:
    open_whole(browser, any_at, width=390, phone=True)
    unreachable = browser.ask(
        "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth"
        " && e.tabIndex < 0 && !e.querySelector('[tabindex=\"0\"], a')).length"
    )
    assert unreachable == 0


def test_landmarks_and_headings_are_in_order(browser: Browser, any_at: Path) -> None:
    open_whole(browser, any_at, width=1280)
    for landmark in ("body > header", "body > nav[aria-label]", "body > main", "body > footer"):
        assert browser.ask(f"document.querySelectorAll('{landmark}').length") == 1, landmark
    levels = browser.ask("[...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    dead = browser.ask(
        "[...document.querySelectorAll('a[href^=\"#\"]')]"
        ".filter(a => !document.getElementById(a.getAttribute('href').slice(1))).length"
    )
    assert dead == 0


def test_text_is_dark_enough_on_its_ground(browser: Browser, any_at: Path) -> None:
    """WCAG 2.2 AA, for every colour the style sheet gives to words on white."""
    open_whole(browser, any_at, width=1280)
    lowest = browser.ask(
        """(() => {
          const lum = c => { const p = c.map(v => v / 255).map(v =>
            v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * p[0] + 0.7152 * p[1] + 0.0722 * p[2]; };
          const rgb = s => s.match(/[0-9.]+/g).map(Number);
          let worst = [99, ''];
          for (const e of document.querySelectorAll(
              'p,li,a,th,td,dt,dd,small,code,caption,b,span,summary,figcaption')) {
            if (!e.textContent.trim() || e.closest('.skip')) continue;
            let g = e, back = [255, 255, 255];
            while (g) { const b = rgb(getComputedStyle(g).backgroundColor);
              if (b.length < 4 || b[3] > 0.9) { back = b; break; } g = g.parentElement; }
            const [a, c] = [lum(rgb(getComputedStyle(e).color)), lum(back)].sort((x, y) => y - x);
            const ratio = (a + 0.05) / (c + 0.05);
            if (ratio < worst[0]) worst = [ratio, e.tagName + ' ' + e.textContent.slice(0, 40)];
          }
          return worst; })()"""
    )
    assert lowest[0] >= 4.5, lowest


def test_sealed_cells_look_like_no_value(browser: Browser, at: Path) -> None:
    browser.open(at, width=1280)
    kinds = browser.ask(
        "[...new Set([...document.querySelectorAll('td.sealed')].map(e =>"
        " getComputedStyle(e).backgroundImage + getComputedStyle(e).backgroundColor))].length"
    )
    assert kinds == 1, "a sealed cell's looks depend on nothing"
    words = browser.ask(
        "[...new Set([...document.querySelectorAll('td.sealed span')].map(e => e.textContent))]"
    )
    assert words == ["sealed"]
    hatches = browser.ask(
        "['sealed', 'out'].map(k => getComputedStyle(document.querySelector("
        "'.heat td.' + k)).backgroundImage)"
    )
    assert hatches[0] != hatches[1]
    assert all("gradient" in one for one in hatches)


def test_it_prints(browser: Browser, any_at: Path) -> None:
    open_whole(browser, any_at, width=1280)
    # A hatch that the PDF writer cannot bear shows as a browser that does not answer in time.
    data = browser.pdf()
    assert data.startswith(b"%PDF-")
    n_pages = len(re.findall(rb"/Type\s*/Page\b", data))
    assert 5 < n_pages < 80
    browser.call("Emulation.setEmulatedMedia", media="print")
    hidden = browser.ask("getComputedStyle(document.querySelector('nav')).display")
    over = browser.ask("getComputedStyle(document.querySelector('.scroll')).overflowX")
    browser.call("Emulation.setEmulatedMedia", media="")
    assert (hidden, over) == ("none", "visible")


@pytest.mark.parametrize(("width", "phone"), [(1280, False), (390, True)])
def test_charts_are_drawn_where_their_numbers_are(
    browser: Browser, drift_at: Path, width: int, phone: bool
) -> None:
    browser.open(drift_at, width=width, phone=phone)
    assert browser.requests() == [drift_at.as_uri()]
    assert browser.complaints() == []
    browser.ask("document.querySelector('#drifts .strips').scrollIntoView()")
    pixels = read_png(browser.picture())[:, :, :3].astype(int)
    # The margin's shade, a drift's diamonds, the ink of the intervals.
    for colour, least in (([230, 240, 234], 2000), ([143, 67, 0], 100), ([23, 30, 41], 300)):
        assert (np.abs(pixels - colour).sum(axis=2) < 12).sum() > least, colour
    # A row's shade is as high as the row, so that the rows make one band.
    gaps = browser.ask(
        "[...document.querySelectorAll('#drifts .strip:not(.axis)')].map(e =>"
        " e.querySelector('.track').clientHeight - e.querySelector('.drawing').clientHeight)"
    )
    assert set(gaps) == {0}


@pytest.mark.parametrize(("width", "phone"), [(1280, False), (390, True), (320, True)])
def test_no_words_of_a_chart_are_cut_or_lie_on_others(
    browser: Browser, drift_at: Path, width: int, phone: bool
) -> None:
    open_whole(browser, drift_at, width=width, phone=phone)
    cut = browser.ask(
        """[...document.querySelectorAll('svg text')].filter(e => {
          const t = e.getBoundingClientRect(), s = e.closest('svg').getBoundingClientRect();
          return t.left < s.left - 1 || t.right > s.right + 1
            || t.top < s.top - 1 || t.bottom > s.bottom + 1;
        }).map(e => e.textContent).slice(0, 5)"""
    )
    assert cut == []
    crossing = browser.ask(
        """[...document.querySelectorAll('svg')].flatMap(s => {
          const boxes = [...s.querySelectorAll(':scope > text')].filter(e => e.textContent)
            .map(e => [e.textContent, e.getBoundingClientRect()]);
          return boxes.flatMap(([a, x], n) => boxes.slice(n + 1).filter(([b, y]) =>
            x.left < y.right && y.left < x.right && x.top + 2 < y.bottom && y.top + 2 < x.bottom)
            .map(([b]) => a + ' / ' + b)); }).slice(0, 5)"""
    )
    assert crossing == []
