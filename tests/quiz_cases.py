"""A small bank for the tests of the quiz: one question with an item of every kind, one claim."""

QUESTION = '''
[[question]]
id = "A06"
section = "A"
level = 1
asked = "core"
anchor = "03_C#C01"
exercises = ["online_softmax"]
sources = ["A source."]

[question.values]
one = "score_bytes(B=1, Hq=1, Nq=4096, Nk=4096, dtype='fp16')"
all = "8 * 32 * one"

[question.intent]
en = "Can you count bytes?"
zh = "会不会数字节。"

[question.prompt]
en = "How large is the attention matrix?"
zh = "注意力矩阵有多大？"

[question.spoken]
en = """{spoken_en}"""
zh = """{spoken_zh}"""

[question.answer]
en = "**B · H · N²** times the bytes per element: {all:GiB}."
zh = "**B·H·N²** 乘每个元素的字节数：{all:GiB}。"

[[question.key_point]]
id = "formula"
level = "must"
en = "batch × heads × N²"
zh = "batch × 头数 × N²"
terms.en = [["batch"], ["head"], ["square", "n²"]]
terms.zh = [["batch", "批"], ["头"], ["平方", "n²"]]

[[question.key_point]]
id = "number"
level = "must"
en = "a number with its unit"
zh = "带单位的数"
terms.en = [["gib", "gb"]]
terms.zh = [["gib", "gb"]]

[[question.key_point]]
id = "layer"
level = "strong"
en = "for one layer"
zh = "只是一层"
terms.en = [["layer"]]
terms.zh = [["层"]]

[[question.misconception]]
id = "one_head"
en = {claim = "One matrix in all.", why = "Papers show one head.", refutes = "Print the shape."}
zh = {claim = "总共一张矩阵。", why = "论文只写一个头。", refutes = "打印形状。"}
[[question.misconception]]
id = "gqa"
terms.en = [["gqa"], ["shrinks", "smaller"]]
terms.zh = [["gqa"], ["变小", "更小"]]
unticks = ["formula"]
en = {claim = "GQA shrinks it.", why = "It shrinks the cache.", refutes = "Query heads count."}
zh = {claim = "GQA 让它变小。", why = "它让 cache 变小。", refutes = "看 query 头数。"}

[[question.follow_up]]
kind = "quantify"
when = "missed:layer"
en = "And for 32 layers?"
zh = "32 层呢？"
[[question.follow_up]]
kind = "transfer"
when = "always"
en = "And the logits?"
zh = "那 logits 呢？"

[[question.card]]
id = "A06-a"
en = ["4096 × 4096 in fp16?", "32 MiB"]
zh = ["4096×4096 个 fp16？", "32 MiB"]
[[question.card]]
id = "A06-b"
en = ["Which heads count?", "The query heads."]
zh = ["看哪种头数？", "query 头数"]

[[question.item]]
id = "A06-n1"
kind = "numeric"
unit = "bytes"
tolerance = 0.02
draw = {B = [3, 6], H = [16, 32], dtype = ["fp16"]}
show = {size = "itemsize(dtype)"}
expect = "score_bytes(B=B, Hq=H, Nq=4096, Nk=4096, dtype=dtype)"
en.ask = "B = {B}, H = {H}, {size} bytes each. How large?"
zh.ask = "B={B}，H={H}，每个 {size} 字节。多大？"
slips = [
  {value = "expect / H", en = "Times the heads.", zh = "还要乘头数。"},
  {value = "expect / 2", en = "That is the number of entries.", zh = "这是元素个数。"},
]

[[question.item]]
id = "A06-p1"
kind = "predict"
unit = "blocks"
tolerance = 0
draw = {N = [100, 300]}
expect = "tiles(N, 64)"
run = "tiles(N, 64) + 0"
en.ask = "Blocks of 64 for {N} rows?"
zh.ask = "{N} 行，每块 64 行，几块？"
slips = [{value = "N // 64", en = "Round up.", zh = "向上取整。"}]

[[question.item]]
id = "A06-c1"
kind = "choice"
answer = 1
en.ask = "What makes it smaller?"
zh.ask = "什么会让它变小？"
en.options = ["GQA", "fewer bytes per entry", "a mask"]
zh.options = ["GQA", "每个数字节更少", "掩码"]
en.because = ["Query heads count.", "Yes.", "It is stored whole."]
zh.because = ["看 query 头数。", "对。", "照样整张存。"]

[[question.item]]
id = "A06-o1"
kind = "order"
gone = [2]
en.ask = "Put the steps in order."
zh.ask = "请排序。"
en.steps = ["load", "multiply", "store S", "softmax"]
zh.steps = ["读入", "相乘", "写出 S", "softmax"]

[[question.item]]
id = "A06-s1"
kind = "spot_the_error"
code = ["one = N * N * 2", "all = B * one", "print(all)"]
answer = 2
en.ask = "Which line is wrong?"
zh.ask = "哪一行错了？"
en.because = "The heads are missing."
zh.because = "漏了头数。"
'''

SPOKEN = {
    "en": "Take batch eight, thirty-two heads and four thousand tokens. "
    + "Every head of every sequence has a matrix of its own, and it grows with the square of the length. " * 3
    + "In fp16 that makes {all:GiB} for one layer, and training keeps it for every layer.",
    "zh": "取 batch 8、32 个头、长度 4096、fp16，"
    + "每条序列的每个头都有自己的一张矩阵，大小随长度的平方增长，" * 4
    + "一层就是 {all:GiB}，训练时每层都要留下来。",
}

CLAIM = """
[[claim]]
id = "K15"
verdict = "false"
sources = ["A source."]
questions = ["E03"]
text = {en = "Version 1 was parallel over the sequence.", zh = "一代按序列并行。"}
correction = {en = "Over batch and heads.", zh = "按 batch 和头。"}
polite = {en = "I think it was batch and heads.", zh = "我记得是 batch 和头。"}
check = {en = "Count the blocks.", zh = "数一数块。", code = "print(16)", shows = "16"}
"""


def question(id="A06", **replaced):
    """The question as TOML, with another id and with texts replaced: question(**{"old": "new"})."""
    text = QUESTION.replace("{spoken_en}", SPOKEN["en"]).replace("{spoken_zh}", SPOKEN["zh"])
    for old, new in replaced.items():
        assert old in text, old
        text = text.replace(old, new)
    return text.replace("A06", id).replace('section = "A"', f'section = "{id[0]}"')


def write(folder, *ids, claims=("K15",), **replaced):
    """Write a bank with these questions and claims into `folder`; returns it."""
    for section in {id[0] for id in ids or ("A06",)}:
        chosen = [id for id in ids or ("A06",) if id[0] == section]
        text = "\n".join(question(id, **replaced) for id in chosen)
        (folder / f"{section}.toml").write_text(text, encoding="utf-8")
    (folder / "claims.toml").write_text("\n".join(CLAIM.replace("K15", c) for c in claims), encoding="utf-8")
    return folder
