"""What the question bank holds, in one language: frozen dataclasses, made by flashlab.quiz.bank_loader."""

from dataclasses import dataclass, field

SECTIONS = {"A": 10, "B": 10, "C": 15, "D": 8, "E": 10, "F": 9, "G": 8}
IDS = tuple(f"{s}{n:02d}" for s, count in SECTIONS.items() for n in range(1, count + 1))
CLAIM_IDS = tuple(f"K{n:02d}" for n in range(1, 47))
LEVELS = ("must", "strong", "bonus")
FOLLOW_UPS = ("deepen", "quantify", "contrast", "verify", "transfer", "pressure")
KINDS = ("numeric", "predict", "choice", "order", "spot_the_error")
VERDICTS = ("true", "partly", "false")


@dataclass(frozen=True)
class KeyPoint:
    """`terms`: every inner tuple needs one hit in what was said."""

    id: str
    level: str
    text: str
    terms: tuple


@dataclass(frozen=True)
class Misconception:
    """A wrong statement, why people believe it, what refutes it. `terms`: as in KeyPoint, all in one sentence
    of what was said; `unticks`: the key points that whoever says it did not make.
    """

    id: str
    claim: str
    why: str
    refutes: str
    terms: tuple = ()
    unticks: tuple = ()


@dataclass(frozen=True)
class FollowUp:
    """`when`: "always" or "missed:<key point>"; `question`: an id of the bank to go on with, or ""; `say`: a
    good reply, or "".
    """

    kind: str
    when: str
    text: str
    question: str = ""
    say: str = ""


@dataclass(frozen=True)
class Card:
    """A prompt of about six seconds."""

    id: str
    ask: str
    answer: str


@dataclass(frozen=True)
class Slip:
    """A common slip of a numeric item: its value (an expression) and what to tell who made it."""

    value: str
    text: str


@dataclass(frozen=True)
class Item:
    """A question that is marked automatically; flashlab.quiz.items draws and marks it.

    numeric, predict: `unit`, `tolerance` (relative), `draws` (name -> values), `shown` (name -> expression,
    for the text), `expect` (expression), `slips`, `run` (expression that the predicted cell runs, or "").
    choice: `options`, `because` (one each), `answer` (position). order: `steps` in the right order, `gone`
    (positions to mark afterwards). spot_the_error: `code` (lines), `answer` (line, from 1), `because` (one).
    """

    id: str
    kind: str
    lang: str
    question: str
    ask: str
    values: dict = field(default_factory=dict, hash=False)
    unit: str = ""
    tolerance: float = 0.01
    draws: dict = field(default_factory=dict, hash=False)
    shown: dict = field(default_factory=dict, hash=False)
    expect: str = ""
    slips: tuple = ()
    run: str = ""
    options: tuple = ()
    because: tuple = ()
    answer: int = 0
    steps: tuple = ()
    gone: tuple = ()
    code: tuple = ()


@dataclass(frozen=True)
class Question:
    """One of the 70 questions. Texts hold their numbers already; `answer` and `spoken` are Markdown."""

    id: str
    section: str
    level: int
    asked: str
    intent: str
    prompt: str
    spoken: str
    answer: str
    key_points: tuple
    misconceptions: tuple
    follow_ups: tuple
    items: tuple
    cards: tuple
    sources: tuple
    anchor: str
    exercises: tuple
    lang: str = "en"


@dataclass(frozen=True)
class Claim:
    """One of the 46 claims of the interview card, in our words.

    `verdict`: "true" | "partly" | "false"; `polite`: one sentence that corrects it in the room; `check`:
    where the learner can see it fail (text); `code`: a program that shows it and prints `shows`, or "";
    `questions`: ids of the bank that treat it; `anchor`: a lesson cell or "".
    """

    id: str
    text: str
    verdict: str
    correction: str
    polite: str
    sources: tuple
    check: str
    code: str = ""
    shows: str = ""
    questions: tuple = ()
    anchor: str = ""
    lang: str = "en"
