"""What the browser tests of widgets with a panel of sizes share."""


def title(frame):
    return frame.locator(".title").inner_text()


def title_is(frame, text):
    frame.wait_for_function("t => document.querySelector('.title')?.textContent === t", arg=text)


def type_into(frame, label, text):
    box = frame.get_by_role("textbox", name=label, exact=True)
    box.fill(text)
    box.press("Enter")


# From a slider's move to the painted frame with the new title, in milliseconds; the worst of twenty.
SLIDE = """async () => {
  const range = document.querySelector('.fl-panel input[type=range]');
  const title = document.querySelector('.fl-panel .title');
  let worst = 0;
  for (let i = 0; i < 20; i++) {
    const before = title.textContent, start = performance.now();
    range.value = i % 2 ? 4 : +range.max - (i % 3);
    range.dispatchEvent(new Event('input', { bubbles: true }));
    if (title.textContent === before) throw new Error('nothing changed');
    await new Promise((r) => requestAnimationFrame(() => setTimeout(r)));
    if (i > 1) worst = Math.max(worst, performance.now() - start);
  }
  return worst;
}"""
