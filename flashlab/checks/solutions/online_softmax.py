"""Built from course/exercises/online_softmax.py by course/build.py: edit that file."""

import numpy as np


def online_attention(scores, values, block):
    m, l, acc = np.full(len(scores), -np.inf), np.zeros(len(scores)), 0
    for j in range(0, len(values), block):
        x, v = scores[:, j : j + block], values[j : j + block]
        m_new = np.maximum(m, x.max(1))
        unit = np.where(np.isneginf(m_new), 0, m_new)  # −∞ minus −∞ would be NaN
        alpha, p = np.exp(m - unit), np.exp(x - unit[:, None])
        m, l, acc = m_new, alpha * l + p.sum(1), alpha[:, None] * acc + p @ v
    l_safe = np.where(l == 0, 1, l)  # an empty row: 0 / 1 instead of 0 / 0
    return acc / l_safe[:, None], m + np.log(l_safe)
