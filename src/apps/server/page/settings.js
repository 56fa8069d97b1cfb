// The settings of the next picture: fields, what is remembered, and the body of a job.
import { $, el, on, setText, show } from './dom.js';

// Number fields are empty where the model's default holds; it is their placeholder.
// `of`: the setting of `ebb generate` that a field is, or is a part of.
const FIELDS = [
  { id: 'width', group: 'size', label: 'Width', min: 64, max: 4096, step: 8, of: 'size' },
  { id: 'height', group: 'size', label: 'Height', min: 64, max: 4096, step: 8, of: 'size' },
  { id: 'strength', group: 'input', label: 'How much changes', slider: true, initial: 0.75 },
  { id: 'masked_content', group: 'input', label: 'Below the mask', masked: true, options: [
    ['', 'automatic'], ['original', 'the picture'], ['fill', 'colours around it'],
    ['noise', 'noise'], ['nothing', 'nothing']] },
  { id: 'mask_blur', group: 'input', label: 'Soft edge, pixels', min: 0, max: 256, masked: true },
  { id: 'only_masked', group: 'input', label: 'Only the painted part, at full size', check: true,
    masked: true },
  { id: 'mask_padding', group: 'input', label: 'Pixels around it', min: 0, max: 512, masked: true },
  { id: 'steps', group: 'tune', label: 'Steps', min: 1, max: 1000 },
  { id: 'guidance', group: 'tune', label: 'Guidance', min: 0, max: 100, step: 'any' },
  { id: 'sampler', group: 'tune', label: 'Sampler', options: [['', 'the model\'s']] },
  { id: 'schedule', group: 'tune', label: 'Schedule', options: [['', 'automatic']] },
  { id: 'seed', group: 'tune', label: 'Seed', text: true },
  { id: 'clip_skip', group: 'tune', label: 'Clip skip', min: 0, max: 12 },
  { id: 'vae', group: 'tune', label: 'Autoencoder (VAE)', options: [['', 'the model\'s']] },
  { id: 'dialect', group: 'tune', label: 'As in', options: [['', 'ebb']] },
  { id: 'hires_on', group: 'more', label: 'Second pass at a larger size (hires)', check: true },
  { id: 'hires_scale', group: 'more', label: 'Times larger', min: 1, max: 4, step: 'any',
    initial: 2, hires: true },
  { id: 'hires_upscaler', group: 'more', label: 'Enlarge with', options: [['', 'latent']],
    hires: true },
  { id: 'hires_steps', group: 'more', label: 'Its steps', min: 1, max: 1000, hires: true },
  { id: 'hires_strength', group: 'more', label: 'How much changes', slider: true, initial: 0.7,
    hires: true },
  { id: 'tiling', group: 'more', label: 'Seamless', options: [['', 'no']] },
];
const byId = Object.fromEntries(FIELDS.map(field => [field.id, field]));
const input = id => $(`f-${id}`);
const KEPT = 'ebb.settings';

let facts = {};            // of the catalogue: name -> {default, help, choices}
let model = {};            // of the catalogue
let extras = {};           // settings without a field of their own
const listeners = [];
export const onSettings = listener => listeners.push(listener);

// ---- building ----

function control(field) {
  const id = `f-${field.id}`;
  if (field.check) return el('input', { id, type: 'checkbox' });
  if (field.options) return el('select', { id });
  if (field.slider)
    return el('input', { id, type: 'range', min: 0, max: 1, step: 0.05, value: field.initial });
  if (field.text) return el('input', { id, type: 'text', inputMode: 'numeric', placeholder: 'random' });
  return el('input', { id, type: 'number', min: field.min, max: field.max, step: field.step || 1,
    inputMode: field.step === 'any' ? 'decimal' : 'numeric', value: field.initial ?? '' });
}

function build(field) {
  const node = control(field);
  const label = el('label', { htmlFor: node.id }, field.label);
  if (field.slider) label.append(' ', el('output', { id: `${node.id}-out`, htmlFor: node.id }));
  const box = el('div', { class: field.check ? 'field check' : 'field', id: `${node.id}-box` },
    ...(field.check ? [node, label] : [label, node]),
    el('p', { class: 'error', id: `${node.id}-error`, hidden: true }),
    el('p', { class: 'mark', id: `${node.id}-mark`, hidden: true }));
  node.setAttribute('aria-describedby', `${node.id}-error ${node.id}-mark`);
  if (field.id === 'seed')
    node.after(el('button', { type: 'button', class: 'inline', onclick: () => {
      node.value = '';
      edited(field);
    } }, 'Random'));
  node.addEventListener('input', () => edited(field));
  $(`${field.group}-fields`).append(box);
}

function setOptions(id, more) {
  const node = input(id), value = node.value;
  node.replaceChildren(...[...byId[id].options, ...more].map(([value, label]) =>
    el('option', { value }, label)));
  choose(node, value);
}

/** Selects a value, also one that is not among the options, which then says so when it is sent. */
function choose(node, value) {
  if (![...node.options].some(option => option.value === value))
    node.append(el('option', { value }, value));
  node.value = value;
}

export function buildSettings() {
  FIELDS.forEach(build);
  setOptions('masked_content', []);
  for (const id of ['sampler', 'schedule', 'vae', 'dialect', 'hires_upscaler', 'tiling'])
    setOptions(id, []);
  $('size-fields').append(el('button', { type: 'button', class: 'inline', 'aria-label': 'Swap width and height',
    onclick: () => {
      const { width, height } = sizeOf();
      setSize(height, width);
    } }, '⇄ Swap'));
  for (const id of ['prompt', 'negative', 'count']) on(id, 'input', () => edited({ id }));
  on('model', 'change', () => edited({ id: 'model' }));
  on('reset', 'click', () => writeSettings({ prompt: $('prompt').value, model: $('model').value }));
  recall();
}

function edited({ id }) {
  if (byId[id]) {
    show(`f-${id}-mark`, false);
    complainAbout(id, '');
  }
  refresh();
  remember();
}

// ---- reading and writing ----

const sizeOf = () => {
  const [w, h] = (model.defaults?.size || '').split('x');
  return { width: input('width').value || w || '', height: input('height').value || h || '' };
};

function setSize(width, height) {
  input('width').value = width;
  input('height').value = height;
  edited(byId.width);
}

/** The value of a field as the user sees it; '' where the default holds. */
const valueOf = id => byId[id].check ? input(id).checked : input(id).value.trim();

const hires = () => {
  const parts = [valueOf('hires_scale') || 2, valueOf('hires_upscaler') || 'latent',
    valueOf('hires_steps') || 0, valueOf('hires_strength')];
  return parts.join(':');
};

/** The settings by the names of `ebb generate`, without pictures; what is default is left out. */
export function readSettings() {
  const out = { ...extras, prompt: $('prompt').value, n: Number($('count').value) || 1 };
  if ($('model').value) out.model = $('model').value;
  if (!isUnused('negative') && $('negative').value) out.negative = $('negative').value;
  const { width, height } = sizeOf();
  if (valueOf('width') || valueOf('height'))
    out.size = `${width || height}x${height || width}`;
  for (const field of FIELDS) {
    const value = valueOf(field.id);
    if (field.of || field.hires || field.id === 'hires_on' || field.group === 'input') continue;
    if (value === '' || value === false || isUnused(field.id)) continue;
    out[field.id] = field.min !== undefined ? Number(value) : value;
  }
  if (valueOf('hires_on')) out.hires = hires();
  out.seed ??= -1;
  return out;
}

/** Those of a run that starts from a picture. */
export function readInputSettings(masked) {
  const out = { strength: Number(valueOf('strength')) };
  if (!masked) return out;
  for (const field of FIELDS) {
    const value = field.masked && valueOf(field.id);
    if (value) out[field.id] = field.min !== undefined ? Number(value) : value;
  }
  return out;
}

/** A setting in the page's fields: {field: text or boolean}; {} where it has none. */
function fieldsOf(name, value) {
  if (name === 'size') {
    const [width, height] = String(value) === 'auto' ? ['', ''] : String(value).split('x');
    return { width, height: height ?? width };
  }
  if (name === 'hires') {
    const [scale, upscaler, steps, strength] = String(value).split(':');
    return value === '' ? { hires_on: false } : { hires_on: true, hires_scale: scale,
      hires_upscaler: upscaler || '', hires_steps: +steps ? steps : '',
      hires_strength: strength || 0.7 };
  }
  if (!byId[name] || byId[name].hires) return {};
  if (byId[name].check) return { [name]: value === true };
  const text = String(value);
  const said = byId[name].slider || ['steps', 'guidance', 'seed'].includes(name);
  const open = text === 'auto' || text === '-1' || !said && text === String(facts[name]?.default);
  return { [name]: open ? '' : text };
}

function writeField(id, value, mark) {
  const node = input(id), before = valueOf(id);
  if (byId[id].check) node.checked = value === true;
  else if (byId[id].options) choose(node, String(value));
  else node.value = value;
  const is = valueOf(id);
  const differs = mark && String(before) !== String(is);
  show(`f-${id}-mark`, differs);
  if (differs) setText($(`f-${id}-mark`), `changed, was ${before === '' ? 'default' : before}`);
  complainAbout(id, '');
  return differs;
}

/** Takes settings; fields that they do not name get their defaults. Returns the number changed. */
export function writeSettings(settings, mark = false) {
  let changed = 0;
  const wanted = {};
  extras = {};
  for (const [name, value] of Object.entries(settings)) {
    if (['prompt', 'negative', 'model', 'n', 'init', 'mask', 'outpaint', 'first_image'].includes(name)) continue;
    const found = fieldsOf(name, value);
    if (Object.keys(found).length) Object.assign(wanted, found);
    else if (String(value) !== String(facts[name]?.default ?? '')) extras[name] = value;
  }
  for (const field of FIELDS) {
    const value = wanted[field.id] ?? field.initial ?? '';
    changed += writeField(field.id, value, mark);
  }
  for (const [id, name] of [['prompt', 'prompt'], ['negative', 'negative']]) {
    changed += mark && $(id).value !== (settings[name] || '');
    $(id).value = settings[name] || '';
  }
  if (settings.model) choose($('model'), settings.model);
  refresh();
  remember();
  return changed;
}

export const snapshotSettings = () => ({ ...readSettings(), ...readInputSettings(true) });

function remember() {
  try {
    localStorage.setItem(KEPT, JSON.stringify(snapshotSettings()));
  } catch {}
}

function recall() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT));
    if (!kept) return refresh();
    writeSettings(kept);
    $('count').value = kept.n || 1;
  } catch {
    refresh();
  }
}

// ---- what fits the model ----

const isUnused = id => (model.unused || []).includes(id);

const round = side => Math.max(64, Math.round(side / 64) * 64);

function presetsOf(size) {
  const [w, h] = size.split('x').map(Number);
  const side = Math.sqrt(w * h);
  const shape = (label, ratio) =>
    [label, round(side * Math.sqrt(ratio)), round(side / Math.sqrt(ratio))];
  return [shape('Square', 1), shape('Portrait', 2 / 3), shape('Landscape', 3 / 2),
    shape('Wide', 16 / 9)];
}

function drawPresets() {
  const { width, height } = sizeOf();
  const presets = presetsOf(model.defaults?.size || '512x512');
  const old = [...$('presets').children];
  presets.forEach(([label, w, h], i) => {
    const pressed = +width === w && +height === h;
    const button = old[i] || $('presets').appendChild(el('button', { type: 'button' },
      el('i', { 'aria-hidden': true }), el('span')));
    button.onclick = () => setSize(w, h);
    button.firstChild.className = `shape s${i}`;
    setText(button.lastChild, label);
    button.title = `${w} × ${h}`;
    button.setAttribute('aria-pressed', pressed);
  });
}

function placeholders() {
  const defaults = model.defaults || {};
  const [w, h] = (defaults.size || '').split('x');
  const text = { width: w, height: h };
  for (const field of FIELDS) {
    if (field.options || field.check || field.slider || field.text) continue;
    const value = text[field.id] ?? defaults[field.id] ?? facts[field.of ? '' : field.id]?.default;
    input(field.id).placeholder = value === undefined || +value <= 0 ? 'auto' : value;
  }
}

/** Draws what follows from the fields: what is shown, the summaries, presets. */
function refresh() {
  const shown = id => valueOf(id) || input(id).placeholder;
  show('negative-field', !isUnused('negative'));
  for (const field of FIELDS)
    show(`f-${field.id}-box`, !isUnused(field.id) && (!field.hires || valueOf('hires_on'))
      && (!field.masked || $('input-some').dataset.masked === 'yes'));
  for (const field of FIELDS)
    if (field.slider)
      setText($(`f-${field.id}-out`), `${Math.round(input(field.id).value * 100)} %`);
  drawPresets();
  const { width, height } = sizeOf();
  setText($('size-sum'), width || height ? `${width || height} × ${height || width}` : 'the model\'s');
  const sampler = input('sampler');
  setText($('tune-sum'), [`${shown('steps')} steps`, sampler.value && sampler.value,
    valueOf('seed') ? `seed ${valueOf('seed')}` : 'random seed'].filter(Boolean).join(', '));
  setText($('more-sum'), [valueOf('hires_on') && `${valueOf('hires_scale') || 2} times larger`,
    valueOf('tiling') && 'seamless'].filter(Boolean).join(', ') || 'off');
  drawExtras();
  listeners.forEach(listener => listener());
}

export { refresh as refreshSettings };

/** Settings without a field, which came with a picture: shown, sent, and removable. */
function drawExtras() {
  let list = $('extras');
  if (!list) {
    list = el('ul', { id: 'extras', class: 'chips', 'aria-label': 'Further settings' });
    $('tune-fields').after(list);
  }
  list.hidden = Object.keys(extras).length === 0;
  list.replaceChildren(...Object.entries(extras).map(([name, value]) => el('li', {
    title: facts[name]?.help || '' }, `${name} ${value}`, el('button', { type: 'button',
    'aria-label': `Remove ${name}`, onclick: () => {
      delete extras[name];
      refresh();
      remember();
    } }, '✕'))));
}

export function useCatalogue(catalogue, current) {
  facts = Object.fromEntries(catalogue.settings.map(setting => [setting.name, setting]));
  const named = list => list.map(item =>
    typeof item === 'string' ? [item, item] : [item.name, item.label || item.title || item.name]);
  setOptions('sampler', named(catalogue.samplers));
  setOptions('schedule', named(catalogue.schedules).filter(([name]) => name !== 'auto'));
  setOptions('vae', named(catalogue.vaes));
  setOptions('hires_upscaler', named(catalogue.hires_upscalers).filter(([name]) => name !== 'latent'));
  const choices = (name, without) => (facts[name]?.choices || [])
    .filter(choice => choice !== without).map(choice => [choice, choice]);
  setOptions('tiling', choices('tiling', 'none'));
  setOptions('dialect', choices('dialect', 'ebb'));
  for (const field of FIELDS) {
    const help = facts[field.id]?.help;
    if (help) $(`f-${field.id}-box`).title = help;
  }
  const old = $('model').dataset.ready ? $('model').value : remembered();
  $('model').replaceChildren(...catalogue.models.map(({ name, title }) =>
    el('option', { value: name }, title || name)));
  const names = catalogue.models.map(item => item.name);
  $('model').value = [old, current, names[0]].find(name => names.includes(name)) || '';
  if (!names.length) $('model').append(el('option', { value: '' }, 'No models'));
  $('model').disabled = names.length < 1;
  $('model').dataset.ready = 'yes';
  useModel(catalogue);
}

function remembered() {
  try {
    return JSON.parse(localStorage.getItem(KEPT))?.model;
  } catch {
    return '';
  }
}

export function useModel(catalogue) {
  model = catalogue.models.find(item => item.name === $('model').value) || {};
  placeholders();
  refresh();
}

export const chosenModel = () => model;

// ---- faults ----

function complainAbout(id, text) {
  const node = input(id), line = $(`f-${id}-error`);
  node.setAttribute('aria-invalid', text !== '');
  show(line.id, text !== '');
  setText(line, text);
}

/** Shows the server's complaint at its field, opened and focused; false if it has none. */
export function complainAtField(name, text) {
  const id = { size: 'width', hires: 'hires_scale' }[name] || name;
  if (id === 'prompt') {
    setText($('prompt-note'), text);
    show('prompt-note', true);
    $('prompt').focus();
    return true;
  }
  if (!byId[id] || $(`f-${id}-box`).hidden) return false;
  input(id).closest('details').open = true;
  complainAbout(id, text);
  input(id).focus();
  return true;
}

/** Complains of the first field that holds what it may not; true if there is none. */
export function checkFields() {
  for (const field of FIELDS) {
    const node = input(field.id);
    if ($(`f-${field.id}-box`).hidden) continue;
    let text = '';
    if (node.validity.badInput) text = 'This is not a number.';
    else if (node.validity.rangeUnderflow || node.validity.rangeOverflow)
      text = `From ${field.min} to ${field.max}, not ${node.value}.`;
    else if (node.validity.stepMismatch) text = `A multiple of ${field.step}, not ${node.value}.`;
    else if (field.text && node.value && !/^\d{1,20}$/.test(node.value.trim()))
      text = 'Digits, or empty for a random one.';
    if (text) return !complainAtField(field.id, text);
  }
  return true;
}
