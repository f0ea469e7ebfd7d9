"""What the browser tests of widgets with a panel of sizes share."""


def title(frame):
    return frame.locator(".title").inner_text()


def title_is(frame, text):
    frame.wait_for_function("t => document.querySelector('.title')?.textContent === t", arg=text)


def choose(frame, name, value):
    frame.locator(f"select[name={name}]").select_option(value)


def move(frame, name, value):
    """Move a slider or type a number; the milliseconds of its script, and until the next frame is there."""
    return frame.locator(f"[name={name}]").evaluate(
        """async (e, v) => {
        const start = performance.now();
        e.value = v;
        e.dispatchEvent(new Event('input', { bubbles: true }));
        const script = performance.now() - start;
        await new Promise((r) => requestAnimationFrame(() => setTimeout(r)));
        return [script, performance.now() - start];
        }""",
        value,
    )


def type_into(frame, label, text):
    box = frame.get_by_role("textbox", name=label, exact=True)
    box.fill(text)
    box.press("Enter")


# From a slider's move to the painted frame with the new title, in milliseconds: ten moves up and ten down,
# the third best of each, of these the longer. What else the machine does can only make a move longer.
SLIDE = """async () => {
  const range = document.querySelector('.fl-panel input[type=range]');
  const title = document.querySelector('.fl-panel .title'), times = [[], []];
  for (let i = 0; i < 20; i++) {
    const before = title.textContent, start = performance.now();
    range.value = i % 2 ? 4 : +range.max - (i % 3);
    range.dispatchEvent(new Event('input', { bubbles: true }));
    if (title.textContent === before) throw new Error('nothing changed');
    await new Promise((r) => requestAnimationFrame(() => setTimeout(r)));
    times[i % 2].push(performance.now() - start);
  }
  return Math.max(...times.map((way) => way.sort((a, b) => a - b)[2]));
}"""
# Sixty milliseconds more in each move.
SLOW = """() => document.querySelector('.fl-panel').addEventListener('input', () => {
  for (const start = performance.now(); performance.now() < start + 60; );
})"""
