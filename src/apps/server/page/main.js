// Starts the page: what buttons, keys and dropped pictures do.
import { $, el, on, show, setText, toast, complain, doing, announce } from './dom.js';
import { call, ApiError, follow, known, onChange, takeToken, forget } from './api.js';
import * as settings from './settings.js';
import { buildInput, inputOfJob, takeInputFile, takeInputImage } from './input.js';
import { buildPrompt, usePromptLists, drawChips } from './prompt.js';
import { buildQueue, queueJob, draw, stopCurrent, currentImage } from './queue.js';
import { buildGallery, imageKey } from './gallery.js';

let catalogue = null;

// ---- making pictures ----

/** The body of a job from the fields. The start picture's size holds unless one is given. */
async function jobOfFields() {
  const job = { ...settings.readSettings(), ...await inputOfJob() };
  if (job.outpaint) delete job.size;
  return job;
}

let sending = false;

async function generate() {
  if (sending || !settings.checkFields()) return;
  sending = true;
  try {
    await queueJob(await jobOfFields());
    for (const mark of document.querySelectorAll('.mark')) mark.hidden = true;
  } catch (error) {
    if (!(error instanceof ApiError && settings.complainAtField(error.field, error.message)))
      complain(error);
  } finally {
    sending = false;
  }
}

// ---- pictures as settings and as starts ----

const restless = ['init', 'mask', 'outpaint', 'upscale'];
const plain = all => Object.fromEntries(Object.entries(all).filter(([name]) => !restless.includes(name)));

function takeSettings(found, notes = []) {
  const before = settings.snapshotSettings();
  const changed = settings.writeSettings(plain(found), true);
  drawChips();
  toast([`${changed === 1 ? 'One setting' : `${changed} settings`} changed.`, ...notes].join('\n'),
    { action: 'Undo', act: () => {
      settings.writeSettings(before);
      drawChips();
    } });
}

const isEmpty = found => !found || !Object.keys(found).some(name => !['size', 'width', 'height'].includes(name));

async function takeFile(file, as) {
  if (!/^image\//.test(file.type)) throw new Error(`${file.name || 'This'} is no picture.`);
  if (as === 'input') return takeInputFile(file);
  const found = await call('POST', '/inspect', file);
  if (!isEmpty(found.settings)) return takeSettings(found.settings, found.notes);
  await takeInputFile(file);
  toast('The picture has no settings in it, so it is taken as the start picture.');
}

async function takeText(text) {
  const found = await call('POST', '/inspect', { text });
  takeSettings(found.settings, found.notes);
}

const again = ({ settings: made }, more) => queueJob({ ...plain(made), seed: -1, n: 1, ...more });

const pictureActions = {
  settings: meta => takeSettings(meta.settings),
  again: meta => again(meta, {}),
  vary: meta => again(meta, { init: `id:${meta.id}`, strength: 0.55, size: undefined, hires: undefined }),
  upscale: meta => {
    const [upscaler] = catalogue?.upscalers || [];
    if (!upscaler) throw new Error('There is no upscaler (ESRGAN) among the models.');
    return queueJob({ kind: 'upscale', init: `id:${meta.id}`, upscale: upscaler.name });
  },
  input: meta => takeInputImage(meta),
  deleted: id => {
    for (const job of known.jobs.values())
      if (job.images) job.images = job.images.filter(image => image.id !== id);
    draw();
  },
  loaded: draw,
};

const imageIn = data => [...(data?.files || [])].find(file => file.type.startsWith('image/'));

function buildDropping() {
  const zones = $('dropping');
  const isFile = event => event.dataTransfer?.types.includes('Files');
  addEventListener('dragenter', event => { if (isFile(event)) zones.hidden = false; });
  addEventListener('dragover', event => {
    if (!isFile(event)) return;
    event.preventDefault();
    for (const zone of zones.children) zone.classList.toggle('over', zone.contains(event.target));
  });
  addEventListener('dragleave', event => { if (!event.relatedTarget) zones.hidden = true; });
  addEventListener('drop', doing(async event => {
    if (!isFile(event)) return;
    event.preventDefault();
    zones.hidden = true;
    const file = event.dataTransfer.files[0];
    if (file) await takeFile(file, event.target.closest('[data-drop]')?.dataset.drop);
  }));
  addEventListener('paste', doing(async event => {
    const file = imageIn(event.clipboardData);
    const text = event.clipboardData.getData('text/plain');
    if (!file && !/\bSteps: \d+, /.test(text)) return;
    event.preventDefault();
    await (file ? takeFile(file) : takeText(text));
  }));
  on('open', 'click', () => $('open-file').click());
  on('open-file', 'change', doing(async event => {
    const [file] = event.target.files;
    event.target.value = '';
    if (file) await takeFile(file);
  }));
}

// ---- keys ----

const KEYS = [
  ['Ctrl Enter', 'make the picture, or add it to the queue'], ['Esc', 'stop, or close what is open'],
  ['/', 'go to the prompt'], ['Ctrl ↑ ↓', 'more or less weight of the words at the caret'],
  ['← → Home End', 'walk through the pictures'], ['Enter', 'open the picture'],
  ['m', 'once more, with another seed'], ['v', 'vary the picture'], ['u', 'upscale it'],
  ['t', 'take its settings'], ['i', 'start from it'], ['Delete', 'delete it'], ['?', 'this list'],
];

function globalKey(event) {
  const { key, target } = event;
  if ((event.ctrlKey || event.metaKey) && key === 'Enter') {
    event.preventDefault();
    return generate();
  }
  if (event.defaultPrevented || document.querySelector('dialog[open]')) return;
  if (key === 'Escape') return stopCurrent().catch(complain);
  if (target.closest('input, textarea, select') || event.ctrlKey || event.metaKey || event.altKey) return;
  if (key === '/') $('prompt').focus();
  else if (key === '?') $('keys').showModal();
  else return currentImage() && imageKey(event, currentImage());
  event.preventDefault();
}

function buildKeys() {
  addEventListener('keydown', globalKey);
  on('help', 'click', () => $('keys').showModal());
  on('keys-close', 'click', () => $('keys').close());
  $('keys-list').append(...KEYS.flatMap(([keys, text]) => [
    el('dt', {}, ...keys.split(' ').map(key => el('kbd', {}, key))), el('dd', {}, text)]));
}

// ---- the server's state ----

const EXAMPLES = ['A lighthouse in the fog, early morning, soft light',
  'A fox asleep in autumn leaves, watercolour', 'The inside of an old observatory, oil painting'];

function drawEmpty() {
  const none = catalogue && !catalogue.models.length;
  setText($('empty-title'), none ? 'There is no model yet' : 'Describe a picture');
  setText($('empty-text'), none
    ? 'Put a Stable Diffusion checkpoint (.safetensors, .ckpt or a folder of diffusers) into the folder that ebb serve was started with, then look again.'
    : 'Write what it shows and press Generate. It appears here while it is made.');
  const button = (text, work) => el('button', { type: 'button', onclick: work }, text);
  $('examples').replaceChildren(...(none ? [button('Look again', doing(loadCatalogue))]
    : EXAMPLES.map(text => button(text, () => {
      $('prompt').value = text;
      $('prompt').dispatchEvent(new Event('input', { bubbles: true }));
      $('generate').focus();
    }))));
}

async function loadCatalogue() {
  catalogue = await call('GET', '/catalogue');
  settings.useCatalogue(catalogue, known.model?.name);
  usePromptLists(catalogue);
  drawEmpty();
  if (catalogue.scanning) setTimeout(() => loadCatalogue().catch(() => {}), 1500);
  for (const fault of catalogue.faults || [])
    toast(fault.error.includes(fault.file) ? fault.error : `${fault.file}: ${fault.error}`, { error: true });
}

function heard(type, data) {
  if (type === 'link') {
    show('banner', !data);
    setText($('banner'), data ? '' : 'The connection to ebb is lost. Trying again… What waits in its queue is kept there.');
    if (data && catalogue) toast('Connected again.');
    if (data) loadCatalogue().catch(complain);
  }
  if (type === 'model' || type === 'state') {
    const state = known.model?.state;
    setText($('status'), state === 'loading' ? 'Loading the model…' : '');
  }
}

function start() {
  takeToken();
  settings.buildSettings();
  buildInput();
  buildPrompt();
  buildGallery(pictureActions);
  buildQueue();
  buildKeys();
  buildDropping();
  onChange(heard);
  on('form', 'submit', event => {
    event.preventDefault();
    generate();
  });
  on('model', 'change', () => catalogue && settings.useModel(catalogue));
  $('prompt').focus({ preventScroll: true });
  drawEmpty();
  drawChips();
  follow();
}

start();
