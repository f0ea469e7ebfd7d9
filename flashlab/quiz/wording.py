"""Sentences put together in either language: one or many, a label and its text, a list."""

from flashlab.text import t


def counted(key, lang, count, **values):
    """The text at quiz.`key`, or at quiz.`key`_one where `count` is 1."""
    return t(f"quiz.{key}_one" if count == 1 else f"quiz.{key}", lang, count=count, **values)


def labelled(key, text, lang):
    """Label and text, with the colon of the language."""
    return t(key, lang) + (": " if lang == "en" else "：") + text


def listed(texts, lang):
    """Texts in one line."""
    return ("; " if lang == "en" else "；").join(texts)
