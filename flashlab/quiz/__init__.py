"""What the course asks: the lessons' own prompts and predictions (lessons/*.toml, read by prompts.py), and
the question bank (bank/*.toml): `load(lang)` and `load_claims(lang)`.
"""


def load(lang="en"):
    """The questions of the bank in `lang` ("en" or "zh"), by id: a list of flashlab.quiz.model.Question.

    Raises ValueError for another language, and for a broken bank (file, id and field are named).
    """
    from flashlab.quiz import bank_loader

    return bank_loader.load(lang)


def load_claims(lang="en"):
    """The claims of the interview card in `lang`, by id: a list of flashlab.quiz.model.Claim."""
    from flashlab.quiz import bank_loader

    return bank_loader.load_claims(lang)
