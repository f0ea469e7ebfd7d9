"""The report in a browser: offline, both themes, both languages, narrow and wide, and on paper."""

import re

import pytest
from report_cases import GPU, record, row

import flashlab
from flashlab.bench import report
from flashlab.bench.report import gather

pytestmark = pytest.mark.browser
CHECK = gather.TrafficCheck((("load", "q", 64, 64), ("store", "o", 32, 32)), "N = 4", GPU)


@pytest.fixture
def file(tmp_path, monkeypatch):
    """`file(language)`: the path of a page with charts, sentences, refusals and refused rows."""
    monkeypatch.setattr(gather, "traffic_check", lambda origin: CHECK)

    def make(language):
        flashlab.lang(language)
        rows = []
        for n in (512, 1024, 2048, 4096, 8192):
            for peer, factor in (("fa2", 1.0), ("sdpa-flash", 1.4), ("sdpa-cudnn", 0.97), ("standard", 3.1)):
                size = 4 * n * n if peer == "standard" else 200 * n
                more = dict(n=n, dtype="float16", B=16384 // n, H=32, peak_bytes=size)
                rows.append(row(peer, n / 300 * factor, **more))
                rows.append(row(peer, n / 110 * factor, direction="backward", **more, kept_bytes=size))
        rows.append(rows[-1] | {"error": "OutOfMemoryError: CUDA out of memory"})
        path = tmp_path / f"{language}.html"
        html, _ = report.build([record(*rows, origin=GPU, suite="kernels")])
        path.write_text(html, encoding="utf-8")
        return path

    yield make
    flashlab.lang("en")


@pytest.mark.parametrize(
    "scheme, language, width",
    [("light", "en", 900), ("dark", "zh", 900), ("dark", "en", 1400), ("light", "zh", 1400)],
)
def test_it_is_readable_for_everyone_asks_for_nothing_and_fits(
    scheme, language, width, file, new_page, violations
):
    page = new_page(color_scheme=scheme, viewport={"width": width, "height": 1000})
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.context.set_offline(True)
    path = file(language)
    page.goto(path.as_uri())
    assert asked == [path.as_uri()]
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    assert violations(page) == {}
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_no_word_of_a_chart_is_cut_off_or_lies_on_another(file, new_page):
    page = new_page(viewport={"width": 900, "height": 1000})
    page.goto(file("en").as_uri())
    faults = page.evaluate("""() => [...document.querySelectorAll('svg.chart')].flatMap((svg) => {
      const frame = svg.getBoundingClientRect();
      const boxes = [...svg.querySelectorAll('text')].map((t) => [t.textContent, t.getBoundingClientRect()]);
      const out = boxes.filter(([, b]) => b.left < frame.left - 1 || b.right > frame.right + 1
        || b.top < frame.top - 1 || b.bottom > frame.bottom + 1).map(([t]) => `${t} is cut off`);
      boxes.forEach(([s, a], i) => boxes.slice(i + 1).forEach(([t, b]) => {
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4)
          out.push(`${s} lies on ${t}`);
      }));
      return out;
    })""")
    assert faults == []


def test_wide_tables_are_reached_by_keyboard_and_folded_ones_open(file, new_page):
    page = new_page(viewport={"width": 500, "height": 900})
    page.goto(file("en").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 500
    page.locator("summary", has_text="Every measurement of yours").press("Enter")
    table = page.get_by_role("table", name=re.compile("Every measurement"))
    assert table.is_visible()
    box = page.locator(".wide").first
    box.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("document.querySelector('.wide').scrollLeft > 0")


def test_it_prints_black_on_white_with_every_sentence(file, new_page):
    page = new_page(color_scheme="dark")
    page.goto(file("en").as_uri())
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(".claim").count() == page.locator(".claim:visible").count() >= 9
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", page.pdf(prefer_css_page_size=True))) <= 14
