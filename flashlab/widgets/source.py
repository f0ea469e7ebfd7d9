"""Python source as highlighted HTML in the notebook's own colours, light and dark."""

import ast
import html
import inspect
import textwrap

# JupyterLab's editor colours where they are, else colours of our own that read 4.5:1 on both backgrounds.
STYLE = """
pre.fl-source.fl-source { /* twice: JupyterLab has rules of its own for pre */
  color-scheme: light dark;
  background: var(--jp-layout-color0, light-dark(#fff, #16181c));
  color: var(--jp-content-font-color1, light-dark(#1f2328, #e6e8eb));
  border-left: 4px solid light-dark(#c9cfd6, #454c56);
  padding: 8px 14px;
  margin: 2px 0;
  overflow-x: auto;
  white-space: pre;
  tab-size: 4;
  font: 13px/1.5 var(--jp-code-font-family, ui-monospace, Menlo, Consolas, monospace);
}
[data-jp-theme-light="true"] pre.fl-source.fl-source { color-scheme: light; }
[data-jp-theme-light="false"] pre.fl-source.fl-source { color-scheme: dark; }
.fl-source .k, .fl-source .kn, .fl-source .kc, .fl-source .ow {
  color: light-dark(#00684b, #4fd1a5); font-weight: 600; }
.fl-source .nf, .fl-source .nc, .fl-source .nd { color: light-dark(#0b57d0, #8ab4ff); }
.fl-source .s1, .fl-source .s2, .fl-source .sd, .fl-source .sa { color: light-dark(#8a3a00, #ffb27d); }
.fl-source .mi, .fl-source .mf { color: light-dark(#6b2fa0, #d0a8ff); }
.fl-source .c1, .fl-source .c { color: light-dark(#4f5661, #b4bac3); font-style: italic; }
"""


def highlighted(text):
    """HTML for `text`; without Pygments the same block without colours."""
    try:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer

        code = highlight(text, PythonLexer(), HtmlFormatter(nowrap=True)).rstrip()
    except ImportError:
        code = html.escape(text)
    return f'<style>{STYLE}</style><pre class="fl-source" tabindex="0">{code}</pre>'


class Source:
    """Python source that shows itself: highlighted in a notebook, plain elsewhere."""

    def __init__(self, text):
        self.text = text

    @classmethod
    def of(cls, function, docstring=True):
        """The source of `function`. Raises TypeError when it has none (a built-in, or no function at all)."""
        inner = inspect.unwrap(getattr(function, "fn", function))  # a Triton kernel keeps its function in .fn
        try:
            text = textwrap.dedent(inspect.getsource(inner)).rstrip()
        except (TypeError, OSError):
            raise TypeError(f"expected a function or class written in Python, got {function!r}") from None
        return cls(text if docstring else without_docstring(text))

    def __repr__(self):
        return self.text

    def _repr_html_(self):
        return highlighted(self.text)


def without_docstring(text):
    """The source of one function or class without its docstring and the blank lines after it."""
    first, *rest = ast.parse(text).body[0].body
    if not rest or not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
        return text
    lines = text.splitlines()
    after = first.end_lineno
    while after < len(lines) and not lines[after].strip():
        after += 1
    return "\n".join(lines[: first.lineno - 1] + lines[after:])
