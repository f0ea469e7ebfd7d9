"""The six-second cards of the bank and of the lessons, and when each comes back: FSRS (library fsrs), no
fuzz, UTC.

A card's state is not stored: it follows from the events of flashlab.progress, replayed in order. A review
in the trainer is a "card" event with a rating, one in a lesson a "prompt" event (knew it, or not yet). An
item answered wrong and an exercise check that failed make the cards of their questions due.
"""

import datetime
from dataclasses import dataclass

from flashlab import progress
from flashlab.quiz import bank_loader, model, prompts
from flashlab.text import t

RATINGS = (1, 2, 3, 4)  # again, hard, good, easy
AGAIN, GOOD = 1, 3


@dataclass(frozen=True)
class DeckCard:
    """A card with the question and the section that it belongs to."""

    id: str
    question: str
    section: str
    ask: str
    answer: str


@dataclass
class State:
    """What is known of a card: `due` and `last` (UTC), `reviews`, whether something else made it due."""

    due: datetime.datetime
    last: datetime.datetime | None = None
    reviews: int = 0
    called: bool = False
    fsrs: object = None


def deck(lang="en", folder=None):
    """All cards in `lang`, by id: those of the bank, and the lessons' prompts that it does not have."""
    found = {}
    for question in bank_loader.load(lang, folder):
        for card in question.cards:
            found[card.id] = DeckCard(card.id, question.id, question.section, card.ask, card.answer)
    for lesson in prompts.lessons().values():
        for id, prompt in lesson.prompts.items():
            question = id.rpartition("-")[0]
            if id not in found and question in model.IDS:
                words = prompt[lang]
                found[id] = DeckCard(id, question, question[0], words["ask"], words["answer"])
    return dict(sorted(found.items()))


def scheduler():
    """The FSRS scheduler, without random intervals. Raises RuntimeError that says what to install."""
    try:
        import fsrs
    except ImportError:
        raise RuntimeError(t("quiz.cards.no_fsrs")) from None
    return fsrs.Scheduler(enable_fuzzing=False)


def states(events, deck, exercises=None):
    """{card id: State} of the cards that were seen or made due by `events` (dicts of flashlab.progress).

    `exercises`: exercise name -> ids of the questions it belongs to.
    """
    plan, found, of_question = scheduler(), {}, {}
    import fsrs

    for card in deck.values():
        of_question.setdefault(card.question, []).append(card.id)
    for event in events:
        kind, id, at = event["kind"], event["id"], _time(event["at"])
        if kind == "card" or kind == "prompt":
            rating = event.get("rating") if kind == "card" else (GOOD if event.get("known") else AGAIN)
            if id in deck and rating in RATINGS:
                state = found.setdefault(id, State(at))
                card = state.fsrs or fsrs.Card(card_id=1, due=at)
                state.fsrs, _ = plan.review_card(card, fsrs.Rating(rating), at)
                state.due, state.last, state.called = state.fsrs.due, at, False
                state.reviews += 1
        else:
            for question in _missed(event, exercises or {}):
                for id in of_question.get(question, ()):
                    state = found.setdefault(id, State(at))
                    state.due, state.called = min(state.due, at), True
    return found


def _missed(event, exercises):
    """The questions whose cards an event makes due."""
    if event["kind"] == "item" and event.get("right") is False:
        return [event.get("question", "")]
    if event["kind"] == "check" and event.get("passed") is False:
        return exercises.get(event["id"], ())
    return ()


def now_utc():
    """The time, aware of its zone, which FSRS asks for."""
    return datetime.datetime.now(datetime.UTC)


def _time(text):
    at = datetime.datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=datetime.UTC)


def exercises_of(questions):
    """{exercise: ids of the questions that name it}."""
    found = {}
    for question in questions:
        for name in question.exercises:
            found.setdefault(name, []).append(question.id)
    return found


def due(lang="en", now=None, limit=20, new=10, section=None, folder=None, events=None):
    """The cards to review: those due, the longest overdue first, then up to `new` never seen ones in order.

    `section` keeps one letter. Never more than `limit`. Raises RuntimeError without the library fsrs.
    """
    now = now or now_utc()
    cards = deck(lang, folder)
    if section:
        cards = {id: c for id, c in cards.items() if c.section == section}
    events = progress.events() if events is None else events
    known = states(events, cards, exercises_of(bank_loader.load(lang, folder)))
    ready = sorted((s.due, id) for id, s in known.items() if s.due <= now)
    fresh = [id for id in cards if id not in known][:new]
    return [cards[id] for id in [*(id for _, id in ready), *fresh][:limit]]


def counts(lang="en", now=None, folder=None, events=None):
    """{"all", "seen", "due"}: how many cards there are, were reviewed, are due now."""
    now = now or now_utc()
    cards = deck(lang, folder)
    events = progress.events() if events is None else events
    known = states(events, cards, exercises_of(bank_loader.load(lang, folder)))
    return {
        "all": len(cards),
        "seen": sum(s.reviews > 0 for s in known.values()),
        "due": sum(s.due <= now for s in known.values()),
    }
