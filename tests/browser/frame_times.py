"""How long frames take: script time per frame on the thread's own clock, and the time between frames.

Chromium's trace says for every callback of requestAnimationFrame how long its thread worked on it. Waiting
for a core does not count there, but caches and cores shared with other processes do: a second page draws the
same few things in every frame, and by how much that varies says how much of a time is the machine's. The time
between frames is judged in those half seconds in which that page is drawn 60 times a second, where there are
enough of them.
"""

import statistics

SCRIPT_MS, BETWEEN_MS, CALM_MS = 4, 20, 18
SLOT_MS, SLOTS = 500, 5

SAME = """() => {
  const c = document.body.appendChild(document.createElement('canvas')).getContext('2d');
  const next = () => {
    c.clearRect(0, 0, 300, 150);
    for (let i = 0; i < 60; i++) (c.fillText(`K ${i}`, 20, i), c.strokeRect(i, i, 9, 9));
    requestAnimationFrame(next);
  };
  next();
}"""


def events_during(page, seconds):
    """The trace's requestAnimationFrame callbacks and paintings of the whole browser during `seconds`."""
    session, events, ended = page.context.browser.new_browser_cdp_session(), [], []
    session.on("Tracing.dataCollected", lambda part: events.extend(part["value"]))
    session.on("Tracing.tracingComplete", lambda _: ended.append(True))
    config = {"includedCategories": ["devtools.timeline"]}
    session.send("Tracing.start", {"traceConfig": config, "transferMode": "ReportEvents"})
    page.wait_for_timeout(1000 * seconds)
    session.send("Tracing.end")
    while not ended:
        page.wait_for_timeout(50)
    session.detach()
    kept = [
        e for e in events if e["name"] == "PrePaint" or (e["name"] == "FireAnimationFrame" and "tdur" in e)
    ]
    return sorted(kept, key=lambda e: e["ts"])


def frames(events):
    """Lists of [start, script] in ms, one for each process: all callbacks between two paintings of a process
    are one frame.
    """
    found, fresh = {}, {}
    for event in events:
        pid = event["pid"]
        if event["name"] == "PrePaint":
            fresh[pid] = True
            continue
        mine = found.setdefault(pid, [])
        if fresh.get(pid, True):
            mine.append([event["ts"] / 1000, 0.0])
        fresh[pid] = False
        mine[-1][1] += event["tdur"] / 1000
    return found


def p95(numbers):
    """The 95th percentile."""
    return statistics.quantiles(numbers, n=20)[-1]


def gaps_by_slot(drawn):
    """{half second: times between its frames in ms}."""
    slots = {}
    for (a, _), (b, _) in zip(drawn, drawn[1:], strict=False):
        slots.setdefault(int(b // SLOT_MS), []).append(b - a)
    return slots


def too_slow(page, other_page, tries=5):
    """What is wrong with the frames that `page` draws now, as a sentence; None if nothing is."""
    other_page.goto("data:text/html,<title>same</title><body>")
    marked = other_page.context.new_cdp_session(other_page)
    other_frame = marked.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
    other_page.evaluate(SAME)
    script, gaps = [], []
    for _ in range(tries):
        events = events_during(page, 2.5)
        other = {e["pid"] for e in events if e["args"].get("data", {}).get("frame") == other_frame}
        drawn = frames(events)
        calm = [gaps_by_slot(drawn[pid]) for pid in other]
        kept_up = [(slot, y) for x in calm for slot, y in x.items() if len(y) > SLOT_MS / CALM_MS]
        calm = {slot for slot, y in kept_up if p95(y) <= CALM_MS}
        took = [took for pid in drawn.keys() - other for _, took in drawn[pid]]
        same = sorted(took for pid in other for _, took in drawn.get(pid, ()))
        if len(took) > 20 and len(same) > 20:
            # how much longer the same drawing takes now and then; not asked where the plain time is good
            strain = 1 if p95(took) <= SCRIPT_MS else p95(same) / same[len(same) // 20]
            script.append((p95(took) / strain, p95(took)))
        for pid in drawn.keys() - other:
            gaps += [p95(x) for slot, x in gaps_by_slot(drawn[pid]).items() if slot in calm and len(x) > 3]
        if script and script[-1][0] <= SCRIPT_MS:
            break
    if not script or min(script)[0] > SCRIPT_MS:
        least, plain = min(script, default=(float("inf"), float("inf")))
        return f"{plain:.1f} ms of script a frame (95th percentile), {least:.1f} without the machine's share"
    if len(gaps) >= SLOTS and statistics.median(gaps) > BETWEEN_MS:
        return f"{statistics.median(gaps):.1f} ms between frames (95th percentile of a half second)"
    print(f"script {min(script)[0]:.2f} ms a frame ({min(script)[1]:.2f}); {len(gaps)} calm half seconds")
    return None
