// A little Markdown as DOM nodes: paragraphs, lists, tables, code blocks, **bold**, *italic*, `code`. Never innerHTML.
const mdNode = (tag, ...children) => {
  const made = document.createElement(tag);
  made.append(...children);
  return made;
};

function mdInline(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(/\*\*(.+?)\*\*|`([^`]+)`|(?<![\w*])\*(?!\s)([^*]+?)\*(?![\w*])/g)) {
    parts.push(text.slice(at, found.index));
    if (found[2] !== undefined) parts.push(mdNode("code", found[2]));
    else parts.push(mdNode(found[1] !== undefined ? "strong" : "em", ...mdInline(found[1] ?? found[3])));
    at = found.index + found[0].length;
  }
  parts.push(text.slice(at));
  return parts.filter((part) => part !== "");
}

function mdTable(rows) {
  const cells = rows.map((row) => row.trim().replace(/^\||\|$/g, "").split("|").map((c) => c.trim()));
  const body = cells.slice(1).filter((row) => !row.every((c) => /^:?-+:?$/.test(c)));
  const line = (row, tag) =>
    mdNode("tr", ...row.map((c, n) => {
      const cell = mdNode(tag === "th" || n === 0 ? "th" : "td", ...mdInline(c));
      if (cell.tagName === "TH") cell.scope = tag === "th" ? "col" : "row";
      return cell;
    }));
  const table = mdNode("table", mdNode("thead", line(cells[0], "th")), mdNode("tbody", ...body.map((r) => line(r, "td"))));
  const frame = mdNode("div", table);
  frame.className = "fl-scroll";
  frame.tabIndex = 0;
  frame.setAttribute("role", "group");
  return frame;
}

function markdown(text) {
  const box = mdNode("div"), lines = text.split("\n");
  box.className = "fl-md";
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    const take = (test) => {
      const from = at;
      while (at < lines.length && test(lines[at])) at += 1;
      return lines.slice(from, at);
    };
    const item = /^\s*([-*]|\d+\.)\s+/;
    if (!line.trim()) at += 1;
    else if (line.startsWith("```")) {
      at += 1;
      box.append(mdNode("pre", mdNode("code", take((l) => !l.startsWith("```")).join("\n"))));
      at += 1;
    } else if (line.trim().startsWith("|")) box.append(mdTable(take((l) => l.trim().startsWith("|"))));
    else if (item.test(line)) {
      const tag = /^\s*\d/.test(line) ? "ol" : "ul";
      box.append(mdNode(tag, ...take((l) => item.test(l)).map((l) => mdNode("li", ...mdInline(l.replace(item, ""))))));
    } else {
      const text = take((l) => l.trim() && !l.startsWith("```") && !item.test(l) && !l.trim().startsWith("|")).join(" ");
      box.append(mdNode("p", ...mdInline(text.replace(/^#+\s*/, ""))));
    }
  }
  return box;
}
