"""Make course/preview.html: the stepper on the running example in one file, to look at before installing.

python course/preview.py             write course/preview.html
python course/preview.py --check     exit with 1 when the committed file differs
python course/preview.py --picture   also take course/preview.png from it (needs playwright and Chromium)
"""

import argparse
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE, PICTURE = FOLDER / "preview.html", FOLDER / "preview.png"
FRAME = 3  # block 2 has arrived and the old part has been converted by 1/4

HEAD = """<style>
html { color-scheme: light dark; background: light-dark(#fff, #16181c); color: light-dark(#1f2328, #e6e8eb); }
body > main { max-width: 980px; margin: 0 auto; padding: 20px;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; }
h1 { font-size: 26px; margin: 0 0 8px; }
p { max-width: 70ch; }
code { font-size: 95%; padding: 1px 5px; border-radius: 4px; background: light-dark(#eef1f4, #2a2f37); }
</style>"""
BEFORE = """<h1>flashlab: a softmax that never sees the whole row</h1>
<p>flashlab is an open course on FlashAttention: you run it, take it apart and watch every number move.
Here one query row meets its keys two at a time. Press <b>Step</b> or <b>Play</b>: when a larger score comes,
what is already in the book shrinks by α before the new block is added, and the answer so far stays exact.
Then break it with a switch, and see which number comes out wrong.</p>
<noscript><p><b>This page needs JavaScript to move. It loads nothing from the network.</b></p></noscript>"""
AFTER = """<p>To go on: clone the repository, type <code>make lab</code> in it (without make:
<code>python3 -m flashlab lab</code>), and JupyterLab opens on the first page of the course.
No GPU is needed.</p>"""


def stepper():
    """The running example: query 5 of the six tokens, scores as exponents of 2."""
    import flashlab

    q, k, v = flashlab.data.tiny()
    strings = {"lang": "en", **flashlab.text.table("stepper", "en")}
    return flashlab.SoftmaxStepper(q[5] @ k.T, v, block=2, unit="log2", strings=strings)


def build_preview():
    """The whole page as a string: the same on every machine."""
    from flashlab.widgets._base import twin_document

    return twin_document(stepper(), title="flashlab", head=HEAD, before=BEFORE, after=AFTER) + "\n"


def take_picture(chromium, path=PICTURE):
    """Write a PNG of the stepper at the moment of the first conversion; returns the path."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(
            viewport={"width": 900, "height": 800}, device_scale_factor=1.5, reduced_motion="reduce"
        )
        page.goto(PAGE.as_uri())
        for _ in range(FRAME):
            page.get_by_role("button", name="Step", exact=True).click()
        page.mouse.move(0, 0)
        page.evaluate("document.activeElement.blur()")
        page.locator(".fl-stepper").screenshot(path=path)
        browser.close()
    return path


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 when the file differs"
    )
    parser.add_argument("--picture", action="store_true", help="also take course/preview.png")
    wanted = parser.parse_args(arguments)
    page = build_preview()
    if wanted.check:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
            print("course/preview.html differs from its source: run python course/preview.py")
            return 1
        return 0
    PAGE.write_text(page, encoding="utf-8")
    if wanted.picture:
        from flashlab.machine import NO_CHROMIUM, find_chromium

        chromium = find_chromium()
        if chromium is None:
            print(NO_CHROMIUM)
            return 1
        take_picture(chromium)
    return 0


if __name__ == "__main__":
    sys.exit(main())
