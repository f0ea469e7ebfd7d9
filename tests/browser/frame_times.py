"""How long frames take: script time per frame on the thread's own clock, and the time between frames.

Chromium's trace says for every callback of requestAnimationFrame how long its thread worked on it, to which
other processes add nothing. The time between frames has no such clock: it is judged in those half seconds in
which an empty page, open at the same time, is drawn 60 times a second.
"""

import statistics

SCRIPT_MS, BETWEEN_MS, EMPTY_MS = 4, 20, 18
SLOT_MS = 500

EMPTY = "() => { const next = () => requestAnimationFrame(next); next(); }"


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


def too_slow(page, empty_page, tries=5):
    """What is wrong with the frames that `page` draws now, as a sentence; None if nothing is."""
    empty_page.goto("data:text/html,<title>empty</title>")
    marked = empty_page.context.new_cdp_session(empty_page)
    empty = marked.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
    empty_page.evaluate(EMPTY)
    script, gaps = [], []
    for _ in range(tries):
        events = events_during(page, 2.5)
        other = {e["pid"] for e in events if e["args"].get("data", {}).get("frame") == empty}
        drawn = frames(events)
        calm = [gaps_by_slot(drawn[pid]) for pid in other]
        calm = {
            slot for x in calm for slot, y in x.items() if len(y) > SLOT_MS / EMPTY_MS and p95(y) <= EMPTY_MS
        }
        for pid in drawn.keys() - other:
            script += [took for _, took in drawn[pid]]
            gaps += [gap for slot, x in gaps_by_slot(drawn[pid]).items() if slot in calm for gap in x]
        if len(script) > 100 and len(gaps) > 60:
            break
    if p95(script) > SCRIPT_MS:
        return f"{p95(script):.1f} ms of script a frame (95th percentile of {len(script)} frames)"
    if len(gaps) > 60 and p95(gaps) > BETWEEN_MS:
        return f"{p95(gaps):.1f} ms between frames (95th percentile of {len(gaps)})"
    print(f"script {p95(script):.2f} ms a frame of {len(script)}; {len(gaps)} gaps in calm half seconds")
    return None
