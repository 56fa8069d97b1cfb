// Buttons, keys, dropped pictures.
import { $, el, button, on, onFile, show, setText, toast, complain, doing } from './dom.js';
import { call, follow, known, onChange, takeToken, withToken } from './api.js';
import * as form from './form.js';
import { buildInput, inputOfJob, takeInputFile, takeInput } from './input.js';
import { buildPictures, queueJob, draw, stopCurrent, ACTIONS } from './pictures.js';

let catalogue = null;
let sending = Promise.resolve();  // jobs are sent in the order of their clicks

async function send(job, input) {
  try {
    Object.assign(job, await input);
    if (job.outpaint) delete job.size;
    await queueJob(job);
  } catch (error) {
    if (!form.complainAtField(error.field, error.message)) complain(error);
  }
}

function generate() {
  if (!form.checkFields()) return;
  const job = form.readSettings(), input = inputOfJob();
  for (const mark of document.querySelectorAll('.mark')) setText(mark, '');
  sending = sending.then(() => send(job, input));
}

let planned = '', rest = 0;

function planSoon() {
  clearTimeout(rest);
  rest = setTimeout(async () => {
    const { prompt, seed, ...job } = form.readSettings(), key = JSON.stringify(job);
    if (key === planned || !known.linked || document.querySelector('[aria-invalid=true]')) return;
    const plan = await call('POST', '/plan', job).catch(error => ({ text: error.message }));
    planned = plan.text && key;
    show('memory', plan.text);
    $('memory-share').value = plan.bytes / plan.limit || 0;
    setText($('memory-text'), `Memory: ${plan.text}`);
  }, 600);
}

const plain = ({ init, mask, outpaint, upscale, ...others }) => others;

function takeSettings(found, notes = []) {
  if (found.model && !form.modelNamed(found.model))
    notes = [...notes, `Its model is not here: ${found.model}.`];
  const before = form.allSettings(), changed = form.writeSettings(plain(found), true);
  toast([`${changed === 1 ? 'One setting' : `${changed} settings`} changed.`, ...notes].join('\n'),
    { action: 'Undo', act: () => form.writeSettings(before) });
}

async function takeFile(file, as) {
  if (as === 'input') return takeInputFile(file);
  const { settings: found, notes } = await call('POST', '/inspect', file);
  if (found && Object.keys(found).some(name => name !== 'size')) return takeSettings(found, notes);
  await takeInputFile(file);
  toast('The picture has no settings: it is the start picture.');
}

const again = (made, more) => queueJob({ ...plain(made), seed: -1, n: 1, first_image: undefined, ...more });

const pictureActions = {
  settings: meta => takeSettings(meta.settings),
  again: meta => again(meta.settings),
  vary: ({ id, settings: { size, hires, ...made } }) => again(made, { init: `id:${id}`, strength: 0.55 }),
  hires: ({ settings }) => queueJob({ ...plain(settings), n: 1, hires: '2:latent:0:0.6' }),
  upscale: ({ id }) => queueJob({ kind: 'upscale', init: `id:${id}`, upscale: catalogue.upscalers[0]?.name || 'lanczos' }),
  input: takeInput,
};

function buildDropping() {
  const zones = $('dropping'), isFile = event => event.dataTransfer?.types.includes('Files');
  addEventListener('dragenter', event => { zones.hidden = !isFile(event); });
  addEventListener('dragover', event => {
    if (isFile(event)) event.preventDefault();
    for (const zone of zones.children) zone.classList.toggle('over', zone === event.target);
  });
  addEventListener('dragleave', event => { zones.hidden ||= !event.relatedTarget; });
  addEventListener('drop', doing(async event => {
    const [file] = event.dataTransfer.files;
    zones.hidden = true;
    if (!file) return;
    event.preventDefault();
    await takeFile(file, event.target.dataset.drop);
  }));
  addEventListener('paste', doing(async event => {
    const [file] = event.clipboardData.files, text = event.clipboardData.getData('text/plain');
    if (file) return takeFile(file);
    if (!/Steps: \d|"class_type|"num_inf/.test(text)) return;
    event.preventDefault();
    const found = await call('POST', '/inspect', { text });
    takeSettings(found.settings, found.notes);
  }));
  onFile('open', takeFile);
}

const KEYS = {
  'Ctrl Enter': 'make or queue the picture', Esc: 'stop, or close',
  'Ctrl k': 'to the prompt', 'Ctrl ↑ ↓': 'weight of the words at the caret',
  '← → Home End': 'walk through the pictures', Enter: 'open the picture',
  F1: 'this list',
};

function globalKey(event) {
  const { key, target } = event, control = event.ctrlKey || event.metaKey;
  if (event.defaultPrevented || event.isComposing || document.querySelector('dialog[open]')) return;
  if (control && key === 'Enter') generate();
  else if (control && key === 'k') $('prompt').focus();
  else if (key === 'F1') $('keys').showModal();
  else if (key === 'Escape' && !target.matches('input, select')) return stopCurrent().catch(complain);
  else return;
  event.preventDefault();
}

function buildKeys() {
  addEventListener('keydown', globalKey);
  on('help', 'click', () => $('keys').showModal());
  $('keys-list').append(...[...Object.entries(KEYS), ...ACTIONS.filter(([,, key]) => key).map(
    ([, label, key, text]) => [key, `${label}: ${text}`])].flatMap(([keys, text]) => [
    el('dt', {}, ...keys.split(' ').map(key => el('kbd', {}, key))), el('dd', {}, text)]));
}

const EXAMPLES = ['A lighthouse in the fog', 'A red apple', 'A fox in autumn leaves, watercolour'];

function drawEmpty() {
  const none = catalogue && !catalogue.models.length;
  setText($('empty-title'), none ? 'There is no model yet' : 'Describe a picture');
  setText($('empty-text'), none
    ? 'Put a checkpoint into the folder of --models, then look again.'
    : 'Write what it shows and press Generate.');
  $('examples').replaceChildren(...none ? [button('Look again', doing(async () => {
      await call('POST', '/catalogue/rescan', {});
      await loadCatalogue();
    }))]
    : EXAMPLES.map(text => button(text, () => {
      form.typeInto($('prompt'), text);
      $('generate').focus();
    })));
}

async function loadCatalogue() {
  catalogue = await call('GET', '/catalogue');
  form.useCatalogue(catalogue, known.model?.name);
  planSoon();
  drawEmpty();
  if (catalogue.scanning) return setTimeout(() => loadCatalogue().catch(() => {}), 1500);
  const bad = catalogue.faults.map(({ file, error }) => `${file}: ${error}`);
  if (bad[0]) complain({ message: bad.slice(0, 4).join('\n') + (bad[4] ? ' …' : '') });
}

function heard(type, { up, fault }) {
  if (type === 'link') {
    show('banner', !up);
    setText($('banner'), up ? '' : `${fault} Trying again. Its queue is kept.`);
    if (up && catalogue) toast('Connected again.');
    if (up) loadCatalogue().catch(complain);
  }
  planSoon();
  setText($('status'), known.model?.state === 'loading' ? 'Loading the model…' : '');
}

takeToken();
withToken($('training'));
form.buildForm();
buildInput();
buildPictures(pictureActions);
buildKeys();
buildDropping();
drawEmpty();
onChange(heard);
for (const type of ['input', 'click']) on('form', type, planSoon);
on('form', 'submit', event => {
  event.preventDefault();
  generate();
});
if (innerWidth < 760) $('size-group').open = false;
$('prompt').focus({ preventScroll: true });
draw();
follow();
