// The prompt: weights by keys, LoRAs in it, and the list from which LoRAs and embeddings are taken.
import { $, el, on, show, setText } from './dom.js';
import { chosenModel, refreshSettings } from './settings.js';

const LORA = /<lora:([^:>]+)(?::([^>]*))?>/g;
let lists = { loras: [], embeddings: [] };

const lorasIn = text => [...text.matchAll(LORA)].map(([tag, name, weight]) =>
  ({ tag, name: name.trim(), weight: weight ?? '1' }));
const isNamed = name => lists.loras.some(lora => [lora.name, lora.title, lora.alias].includes(name));

function setPrompt(text) {
  $('prompt').value = text;
  $('prompt').dispatchEvent(new Event('input', { bubbles: true }));
}

const withoutTag = tag => setPrompt($('prompt').value.replace(tag, '').replace(/[ ,]+$/, ''));

/** Shows the LoRAs of the prompt with their weights, and those that nothing is named by. */
function drawChips() {
  const found = lorasIn($('prompt').value);
  const list = $('adapters');
  show('adapters', found.length > 0);
  const key = found.map(lora => lora.name).join('\n');
  if (list.dataset.key !== key) {
    list.dataset.key = key;
    list.replaceChildren(...found.map(chipOf));
  }
  found.forEach((lora, i) => {
    const [, weight] = list.children[i].children;
    if (document.activeElement !== weight) weight.value = lora.weight.split(':')[0];
  });
  const missing = found.filter(lora => !isNamed(lora.name)).map(lora => lora.name);
  [...list.children].forEach((chip, i) => chip.classList.toggle('bad', !isNamed(found[i].name)));
  show('prompt-note', missing.length > 0);
  setText($('prompt-note'), missing.length ? `No LoRA is named ${missing.join(', ')}.` : '');
}

function chipOf({ name }) {
  const tagNow = () => lorasIn($('prompt').value).find(lora => lora.name === name)?.tag;
  const weight = el('input', { type: 'number', step: 0.05, 'aria-label': `Weight of ${name}`,
    oninput: () => {
      const tag = tagNow();
      if (tag && weight.value) setPrompt($('prompt').value.replace(tag, `<lora:${name}:${weight.value}>`));
    } });
  return el('li', {}, el('span', {}, name), weight, el('button', { type: 'button',
    'aria-label': `Remove ${name}`, onclick: () => {
      withoutTag(tagNow());
      $('prompt').focus();
    } }, '✕'));
}

// ---- weights ----

/** The words that a change of weight is for: the selection, or the part around the caret. */
function rangeOf({ value, selectionStart: from, selectionEnd: to }) {
  const around = [...value.matchAll(/\(([^()]*):([\d.]+)\)/g)].find(match =>
    match.index <= from && to <= match.index + match[0].length);
  if (around) return { from: around.index, to: around.index + around[0].length,
    text: around[1], weight: +around[2] };
  if (from === to) {
    while (from > 0 && /[^\s,()<>]/.test(value[from - 1])) from--;
    while (to < value.length && /[^\s,()<>]/.test(value[to])) to++;
  }
  return { from, to, text: value.slice(from, to), weight: 1 };
}

function changeWeight(event) {
  if (!(event.ctrlKey || event.metaKey) || !/^Arrow(Up|Down)$/.test(event.key)) return;
  const area = event.target, { from, to, text, weight } = rangeOf(area);
  if (!text.trim()) return;
  event.preventDefault();
  const by = event.key === 'ArrowUp' ? 0.1 : -0.1;
  const next = Math.max(0, Math.round((weight + by) * 100) / 100);
  const made = next === 1 ? text : `(${text}:${next})`;
  area.setRangeText(made, from, to, 'select');
  area.dispatchEvent(new Event('input', { bubbles: true }));
}

// ---- the list ----

const isFor = ({ family }) => !family || !chosenModel().family || family === chosenModel().family;

function insert(area, text) {
  const { value } = area;
  area.value = value.trim() ? `${value.trimEnd().replace(/,$/, '')}, ${text}` : text;
  area.dispatchEvent(new Event('input', { bubbles: true }));
}

function loraRow(lora) {
  const isIn = () => lorasIn($('prompt').value).some(({ name }) => name === lora.name);
  const button = el('button', { type: 'button', onclick: () => {
    const found = lorasIn($('prompt').value).find(({ name }) => name === lora.name);
    if (found) withoutTag(found.tag);
    else insert($('prompt'), `<lora:${lora.name}:1>`);
    label();
  } });
  const label = () => {
    setText(button, isIn() ? 'Remove' : 'Add');
    button.setAttribute('aria-label', `${isIn() ? 'Remove' : 'Add'} ${lora.name}`);
  };
  label();
  return [button];
}

const embeddingRow = ({ name }) => [['prompt', 'Prompt'], ['negative', 'Negative']].map(([id, text]) =>
  el('button', { type: 'button', 'aria-label': `Add ${name} to the ${text.toLowerCase()}`,
    onclick: () => insert($(id), name) }, text));

function drawList() {
  const search = $('picker-search').value.toLowerCase(), all = $('picker-all').checked;
  const rows = (list, kind, buttons) => list.filter(item => (all || isFor(item))
    && item.name.toLowerCase().includes(search)).map(item => el('li', {},
    el('span', {}, item.title || item.name), el('span', { class: 'note' },
      [kind, item.family].filter(Boolean).join(', ')), el('span', { class: 'end' }, ...buttons(item))));
  const found = [...rows(lists.loras, 'LoRA', loraRow),
    ...rows(lists.embeddings, 'embedding', embeddingRow)];
  $('picker-list').replaceChildren(...found);
  show('picker-empty', !found.length);
  setText($('picker-empty'), search ? 'Nothing has such a name.' : 'There is none for this model.');
}

export function usePromptLists(catalogue) {
  lists = catalogue;
  show('pick', lists.loras.length + lists.embeddings.length > 0);
  drawChips();
}

export function buildPrompt() {
  on('prompt', 'input', drawChips);
  for (const id of ['prompt', 'negative']) on(id, 'keydown', changeWeight);
  on('pick', 'click', () => {
    drawList();
    $('picker').showModal();
  });
  on('picker-close', 'click', () => $('picker').close());
  on('picker-search', 'input', drawList);
  on('picker-all', 'change', drawList);
  $('picker').addEventListener('close', () => {
    refreshSettings();
    $('prompt').focus();
  });
}

export { drawChips };
