"""Checks of a page in a browser: names of controls, contrast, the order of the focus."""

CONTROLS = {"button", "textbox", "searchbox", "spinbutton", "slider", "checkbox", "combobox",
            "link", "option", "listbox", "progressbar", "dialog", "DisclosureTriangle", "image"}
CONTRAST = 4.5

# Texts whose colour is too near to what is behind them: [text, ratio, where].
FAINT = """
  const channel = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parse = text => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((v, i) => v * a + under[i] * (1 - a));
  const behind = node => {
    const layers = [];
    for (let e = node; e; e = e.parentElement)
      layers.unshift(parse(getComputedStyle(e).backgroundColor));
    return layers.reduce((under, layer) => over(layer, under), [255, 255, 255]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const check = (node, text, style) => {
    const under = behind(node);
    const colour = over(parse(style.color), under);
    const [a, b] = [light(colour), light(under)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < arguments[0])
      found.push([text.slice(0, 40), Math.round(ratio * 100) / 100, node.id || node.className]);
  };
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    if (!text || !node.checkVisibility({visibilityProperty: true})) continue;
    if (node.closest(':disabled, script, style, #said')) continue;
    check(node, text, getComputedStyle(node));
  }
  for (const node of document.querySelectorAll('[placeholder]'))
    if (node.checkVisibility())
      check(node, node.placeholder, getComputedStyle(node, '::placeholder'));
  return found;
"""

# What Tab reaches, in the order of the document, and where the focus is not to be seen.
REACHED = """
  const all = [...document.querySelectorAll(
    'button, input, select, textarea, summary, a[href], [tabindex="0"]')]
    .filter(e => e.checkVisibility() && !e.disabled && e.type !== 'file' && e.tabIndex >= 0);
  return all.map(e => e.id || e.ariaLabel || e.textContent.trim() || e.className);
"""
FOCUSED = """
  const e = document.activeElement, style = getComputedStyle(e);
  return [e === document.body ? '' : e.id || e.ariaLabel || e.textContent.trim() || e.className,
    parseFloat(style.outlineWidth) >= 2 && style.outlineStyle !== 'none'];
"""


def unnamed(browser):
    """Controls of the accessibility tree that have no name."""
    tree = browser.devtools("Accessibility.getFullAXTree")["nodes"]
    for node in tree:
        role = node.get("role", {}).get("value")
        name = node.get("name", {}).get("value", "").strip()
        if role in CONTROLS and not name and not node.get("ignored"):
            yield f"{role} without a name: {node.get('properties', [])[:2]}"


def faint(browser):
    for text, ratio, where in browser.run(FAINT, CONTRAST):
        yield f"contrast {ratio} of “{text}” ({where})"
