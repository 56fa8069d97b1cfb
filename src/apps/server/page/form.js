// The form: the prompt with its LoRAs, the fields of all settings, and what is remembered.
import { $, el, button, on, setText, show } from './dom.js';

// A field is a setting of `ebb generate`, or a part of one (size, hires); empty, the model's default.
// A `max` that is a name: the `most` of that setting.
const number = (id, group, label, min, max, more) => ({ id, group, label, min, max, ...more });
const choice = (id, group, label, none, more) => ({ id, group, label, none, ...more });
const share = (id, group, label, initial, more) => ({ id, group, label, initial, share: true, ...more });
const check = (id, group, label, more) => ({ id, group, label, check: true, ...more });
const part = { part: true }, masked = { masked: true }, hires = { hires: true, part: true };
const FIELDS = [
  number('width', 'size', 'Width', 64, 'size', part),
  number('height', 'size', 'Height', 64, 'size', part),
  share('strength', 'input', 'How much changes', 0.75, { input: true }),
  choice('masked_content', 'input', 'Below the mask', 'automatic', masked),
  number('mask_blur', 'input', 'Soft edge, pixels', 0, 256, masked),
  number('mask_padding', 'input', 'Pixels around it', 0, 512, masked),
  check('only_masked', 'input', 'Only the painted part, full size', masked),
  number('steps', 'tune', 'Steps', 1, 'steps'),
  number('guidance', 'tune', 'Guidance', 0, 100, { step: 'any' }),
  choice('sampler', 'tune', 'Sampler', 'the model\'s'),
  choice('schedule', 'tune', 'Schedule', 'automatic'),
  number('seed', 'tune', 'Seed'),
  choice('vae', 'tune', 'Autoencoder (VAE)', 'the model\'s'),
  number('clip_skip', 'tune', 'Clip skip', 0, 12),
  choice('dialect', 'tune', 'Like the program', 'ebb'),
  choice('tiling', 'tune', 'Seamless', 'no'),
  check('hires_on', 'tune', 'Second pass, larger (hires)', part),
  number('hires_scale', 'tune', 'Times larger', 1, 4, { ...hires, step: 'any', initial: 2 }),
  choice('hires_upscaler', 'tune', 'Enlarge with', 'latent', hires),
  number('hires_steps', 'tune', 'Its steps', 1, 'steps', hires),
  share('hires_strength', 'tune', 'How much changes', 0.7, hires),
];
const byId = Object.fromEntries(FIELDS.map(field => [field.id, field]));
const input = id => $(`f-${id}`);
const valueOf = id => byId[id].check ? input(id).checked : input(id).value.trim();
const isUnused = id => !!model.unused?.includes(id);
const sizeOf = () => {
  const [w = '', h = w] = model.defaults?.size?.split('x') || [];
  return [input('width').value || w, input('height').value || h];
};

let facts = {};            // of the catalogue: name -> {default, help, choices}
let lists = { models: [], loras: [], embeddings: [] };  // the catalogue
let model = {};            // of it, the chosen one
let extras = {};           // settings without a field
let kept = {};             // from the last visit

function build(field) {
  const id = `f-${field.id}`;
  const node = el(field.none ? 'select' : 'input', { id, oninput: () => edited(field),
    'aria-describedby': `${id}-error ${id}-mark` });
  const { min, max, step = 1, initial = '' } = field;
  if (field.none) node.append(el('option', { value: '' }, field.none));
  else if (field.check) node.type = 'checkbox';
  else if (field.share) Object.assign(node, { type: 'range', min: 0, max: 1, step: 0.05, value: initial });
  else if (max) Object.assign(node, { type: 'number', min, max, step, value: initial });
  else Object.assign(node, { placeholder: 'random', inputMode: 'numeric', pattern: '\\d{1,20}',
    title: 'Digits, or empty for a random one' });
  const label = el('label', { htmlFor: id }, field.label);
  if (field.share) label.append(el('output', { id: `${id}-out` }));
  $(`${field.group}-fields`).append(el('div', { id: `${id}-box`,
    className: field.check ? 'field check' : 'field' }, ...(field.check ? [node, label] : [label, node]),
  el('p', { className: 'error', id: `${id}-error` }), el('p', { className: 'mark', id: `${id}-mark` })));
}

function setOptions(id, options) {
  const node = input(id), { value } = node;
  node.replaceChildren(node.options[0], ...options.map(([value, label = value]) =>
    el('option', { value }, label)));
  choose(node, value);
}

function choose(node, value) {
  if (![...node.options].some(option => option.value === value)) node.append(el('option', { value }, value));
  node.value = value;
}

export function buildForm() {
  FIELDS.forEach(build);
  buildPrompt();
  $('size-fields').append(button('⇄ Swap', () => setSize(...sizeOf().reverse())));
  input('seed').after(button('Random', () => {
    input('seed').value = '';
    edited(byId.seed);
  }));
  for (const id of ['prompt', 'negative', 'count', 'model']) on(id, 'input', () => edited({ id }));
  on('model', 'change', useModel);
  on('reset', 'click', () => writeSettings({ prompt: $('prompt').value, model: $('model').value }));
  try {
    kept = JSON.parse(localStorage.getItem('ebb')) || {};
  } catch {}
  writeSettings(kept);
  $('count').value = kept.n || 1;
}

function edited({ id }) {
  if (byId[id]) {
    setText($(`f-${id}-mark`), '');
    complainAbout(id, '');
  }
  refreshSettings();
  remember();
}

function remember() {
  try {
    localStorage.setItem('ebb', JSON.stringify(allSettings()));
  } catch {}
}

function setSize(width, height) {
  input('width').value = width;
  input('height').value = height;
  edited(byId.width);
}

function read(fields) {
  const out = {};
  for (const { id, max, share } of fields) {
    const value = valueOf(id);
    if (value && !isUnused(id)) out[id] = max || share ? Number(value) : value;
  }
  return out;
}

/** A job without its pictures; what is default is left out. */
export function readSettings() {
  const out = { ...extras, ...read(FIELDS.filter(({ part, input, masked }) => !part && !input && !masked)),
    prompt: $('prompt').value, n: Number($('count').value) || 1 };
  if ($('model').value) out.model = $('model').value;
  if (!isUnused('negative') && $('negative').value) out.negative = $('negative').value;
  if (valueOf('width') || valueOf('height')) {
    const [width, height] = sizeOf();
    out.size = `${width || height}x${height || width}`;
  }
  if (valueOf('hires_on'))
    out.hires = [valueOf('hires_scale') || 2, valueOf('hires_upscaler') || 'latent',
      valueOf('hires_steps') || 0, valueOf('hires_strength')].join(':');
  return { seed: -1, ...out };
}

export const readInputSettings = isMasked =>
  read(FIELDS.filter(({ input, masked }) => input || masked && isMasked));
export const allSettings = () => ({ ...readSettings(), ...readInputSettings(true) });

/** A setting as values of fields; {} where it has none. */
function fieldsOf(name, value) {
  const text = String(value);
  if (name === 'size') {
    const [width, height = width] = text === 'auto' ? [''] : text.split('x');
    return { width, height };
  }
  if (name === 'hires') {
    const [scale, upscaler, steps, strength] = text.split(':');
    return { hires_on: text !== '', hires_scale: scale || 2, hires_upscaler: upscaler,
      hires_steps: +steps ? steps : '', hires_strength: strength };
  }
  const field = byId[name];
  if (!field || field.part) return {};
  const said = field.share || ['steps', 'guidance', 'seed'].includes(name);
  const open = text === 'auto' || text === '-1' || !said && text === String(facts[name]?.default);
  return { [name]: field.check ? value === true : open ? '' : text };
}

function writeField({ id, check, none, initial = '' }, value, mark) {
  const node = input(id), before = valueOf(id);
  if (check) node.checked = !!value;
  else if (none) choose(node, value || '');
  else node.value = value || initial;
  const differs = mark && before !== valueOf(id);
  setText($(`f-${id}-mark`), differs ? `changed, was ${before || 'the default'}` : '');
  complainAbout(id, '');
  return differs;
}

/** Fields that are not named get their defaults. Returns the number changed. */
export function writeSettings({ prompt = '', negative = '', model: name, n, ...others }, mark = false) {
  let changed = 0;
  const wanted = {};
  extras = {};
  for (const [id, value] of Object.entries(others)) {
    const found = fieldsOf(id, value);
    Object.assign(wanted, found);
    if (!Object.keys(found).length && String(value) !== String(facts[id]?.default ?? '')) extras[id] = value;
  }
  for (const field of FIELDS) changed += writeField(field, wanted[field.id], mark);
  for (const [id, value] of Object.entries({ prompt, negative })) {
    changed += $(id).value !== value;
    $(id).value = value;
  }
  const known = modelNamed(name)?.name;
  changed += !!known && known !== $('model').value;
  $('model').value = known || $('model').value;
  useModel();
  remember();
  return changed;
}

const SHAPES = [['Square', 1], ['Portrait', 2 / 3], ['Landscape', 3 / 2], ['Wide', 16 / 9]];

function drawPresets() {
  const [width, height] = sizeOf();
  const [w, h = w] = (model.defaults?.size || (/XL/.test(model.family) ? '1024' : '512')).split('x');
  const unit = w * h < 256 * 256 ? 16 : 64;
  SHAPES.forEach(([label, ratio], i) => {
    const size = [ratio, 1 / ratio].map(
      share => Math.max(64, Math.round(Math.sqrt(w * h * share) / unit) * unit));
    const node = $('presets').children[i] || $('presets').appendChild(button(label));
    node.prepend(node.querySelector('i') || el('i', { style: `aspect-ratio: ${ratio}` }));
    node.onclick = () => setSize(...size);
    node.title = size.join(' × ');
    node.ariaPressed = +width === size[0] && +height === size[1];
  });
}

export function refreshSettings() {
  const isMasked = $('input-some').dataset.masked;
  const [width, height] = sizeOf();
  const defaults = { ...model.defaults, width, height };
  for (const { id, hires, masked, share, max, initial } of FIELDS) {
    show(`f-${id}-box`, !isUnused(id) && (!hires || valueOf('hires_on')) && (!masked || isMasked));
    if (share) setText($(`f-${id}-out`), `${Math.round(input(id).value * 100)} %`);
    else if (max && !initial) {
      const value = defaults[id] || facts[id]?.default;
      input(id).placeholder = value > 0 ? value : 'auto';
    }
  }
  show('negative-field', !isUnused('negative'));
  drawLoras();
  drawPresets();
  setText($('size-sum'), width || height ? `${width || height} × ${height || width}` : 'the model\'s');
  setText($('tune-sum'), [`${valueOf('steps') || input('steps').placeholder} steps`, valueOf('sampler'),
    valueOf('seed') ? `seed ${valueOf('seed')}` : 'random seed', valueOf('hires_on') && 'second pass']
    .filter(Boolean).join(', '));
  $('extras').replaceChildren(...Object.entries(extras).map(([name, value]) => el('li', {
    title: facts[name]?.help || '' }, `${name} ${value}`, button('✕', () => {
    delete extras[name];
    edited({});
  }, { ariaLabel: `Remove ${name}` }))));
}

const choicesOf = name => (facts[name]?.choices || [])
  .filter(value => ![facts[name].default, 'none', 'auto'].includes(value)).map(value => [value]);
const named = list => list.map(item => item.name ? [item.name, item.title] : [item]);

export function useCatalogue(catalogue, current) {
  lists = catalogue;
  facts = Object.fromEntries(catalogue.settings.map(setting => [setting.name, setting]));
  for (const name of ['tiling', 'dialect', 'masked_content']) setOptions(name, choicesOf(name));
  for (const name of ['sampler', 'schedule']) setOptions(name, catalogue[`${name}s`].map(item => [item.name]));
  setOptions('vae', named(catalogue.vaes));
  setOptions('hires_upscaler', named(catalogue.hires_upscalers));
  for (const { id, max } of FIELDS) {
    $(`f-${id}-box`).title = facts[id]?.help || '';
    if (facts[max]) input(id).max = facts[max].most;
  }
  const node = $('model'), names = catalogue.models.map(item => item.name);
  const wanted = [node.disabled ? kept.model : node.value, current, names[0]].find(name => names.includes(name));
  node.replaceChildren(...named(catalogue.models).map(([value, label]) => el('option', { value }, label)));
  if (!names.length) node.append(el('option', { value: '' }, 'No models'));
  node.value = wanted || '';
  node.disabled = !names.length;
  show('pick', lists.loras.length + lists.embeddings.length);
  useModel();
}

/** By its name, its file or its title; none where it is not there. */
export const modelNamed = text => lists.models.find(({ name, title }) =>
  [name, title, title.split(' [')[0]].includes(text));

function useModel() {
  model = modelNamed($('model').value) || {};
  refreshSettings();
}

function complainAbout(id, text) {
  input(id).ariaInvalid = text !== '';
  setText($(`f-${id}-error`), text);
}

/** False if there is no such field. */
export function complainAtField(name, text) {
  const id = { size: 'width', hires: 'hires_scale' }[name] || name;
  if (!byId[id] || $(`f-${id}-box`).hidden) return false;
  input(id).closest('details').open = true;
  complainAbout(id, text);
  input(id).focus();
  return true;
}

export const checkFields = () => !FIELDS.some(({ id }) => {
  const text = input(id).validationMessage;
  return text && complainAtField(id, text);
});

const loras = () => [...$('prompt').value.matchAll(/<lora:([^:>]+):?([^>]*)>/g)].map(
  ([tag, name, weight]) => ({ tag, name, weight: weight || '1' }));
const isNamed = ({ name }) => lists.loras.some(lora => name === lora.name || name === lora.title);

export function typeInto(area, text) {
  area.value = text;
  area.dispatchEvent(new Event('input', { bubbles: true }));
}

const replaceTag = (tag, by) => typeInto($('prompt'), $('prompt').value.replace(tag, by).replace(/[ ,]+$/, ''));
const insert = (id, text) => typeInto($(id), [$(id).value.replace(/[ ,]+$/, ''), text].filter(Boolean).join(', '));

function drawLoras() {
  const found = loras(), list = $('adapters'), key = found.map(lora => lora.name).join('\n');
  show('adapters', found.length);
  if (list.dataset.key !== key) list.replaceChildren(...found.map(chipOf));
  list.dataset.key = key;
  found.forEach((lora, i) => {
    const chip = list.children[i], weight = chip.children[1];
    if (weight !== document.activeElement) weight.value = lora.weight.split(':')[0];
    chip.className = isNamed(lora) ? '' : 'bad';
  });
  const missing = found.filter(lora => !isNamed(lora));
  setText($('prompt-note'), missing.length ? `No LoRA is named ${missing.map(lora => lora.name).join(', ')}.` : '');
}

function chipOf({ name }, i) {
  return el('li', {}, el('span', {}, name), el('input', { type: 'number', step: 0.05,
    ariaLabel: `Weight of ${name}`, oninput: ({ target }) => target.value
      && replaceTag(loras()[i].tag, `<lora:${name}:${target.value}>`) }), button('✕', () => {
    replaceTag(loras()[i].tag, '');
    $('prompt').focus();
  }, { ariaLabel: `Remove ${name}` }));
}

/** The part with a weight, the selection, or the word at the caret. */
function rangeOf({ value, selectionStart: from, selectionEnd: to }) {
  for (const { 0: all, 1: text, 2: weight, index } of value.matchAll(/\(([^()]*):([\d.]+)\)/g))
    if (index <= from && to <= index + all.length) return [index, index + all.length, text, +weight];
  if (from === to) {
    from -= /[^\s,()<>]*$/.exec(value.slice(0, from))[0].length;
    to += /^[^\s,()<>]*/.exec(value.slice(to))[0].length;
  }
  return [from, to, value.slice(from, to), 1];
}

function changeWeight(event) {
  const by = { ArrowUp: 0.1, ArrowDown: -0.1 }[event.key], area = event.target;
  if (!by || !(event.ctrlKey || event.metaKey)) return;
  const [from, to, text, weight] = rangeOf(area), next = Math.max(0, Math.round((weight + by) * 100) / 100);
  if (!text.trim()) return;
  event.preventDefault();
  area.setRangeText(next === 1 ? text : `(${text}:${next})`, from, to, 'select');
  typeInto(area, area.value);
}

function adapterRow(item, kind) {
  const { name, family, title = name } = item;
  const tool = (text, work, label) => button(text, work, { ariaLabel: label });
  const tag = loras().find(lora => lora.name === name)?.tag;
  const tools = kind === 'embedding'
    ? ['prompt', 'negative'].map(id => tool(`Into the ${id}`, () => insert(id, name), `${name} into the ${id}`))
    : [tool(tag ? 'Remove' : 'Add', () => {
      tag ? replaceTag(tag, '') : insert('prompt', `<lora:${name}:1>`);
      const other = adapterRow(item, kind);
      row.replaceWith(other);
      other.querySelector('button').focus();
    }, `${tag ? 'Remove' : 'Add'} ${name}`)];
  const row = el('li', {}, el('span', {}, title), el('span', { className: 'note' },
    [kind, family].filter(Boolean).join(', ')), el('span', { className: 'end' }, ...tools));
  return row;
}

function drawList() {
  const text = $('picker-search').value.toLowerCase(), { family } = model;
  const fits = item => ($('picker-all').checked || !family || !item.family || item.family === family)
    && item.name.toLowerCase().includes(text);
  const rows = [...lists.loras.filter(fits).map(item => adapterRow(item, 'LoRA')),
    ...lists.embeddings.filter(fits).map(item => adapterRow(item, 'embedding'))];
  $('picker-list').replaceChildren(...rows);
  setText($('picker-empty'), rows.length ? '' : text ? 'Nothing has such a name.' : 'There is none for this model.');
}

function buildPrompt() {
  for (const id of ['prompt', 'negative']) on(id, 'keydown', changeWeight);
  on('pick', 'click', () => {
    drawList();
    $('picker').showModal();
  });
  on('picker-search', 'input', drawList);
  on('picker-all', 'change', drawList);
}
