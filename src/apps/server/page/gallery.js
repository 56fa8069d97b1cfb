// The pictures of this server: thumbnails, the viewer, and what can be done with a picture.
import { $, el, on, show, setText, announce, doing, ask, complain } from './dom.js';
import { call, known, onChange, setImage, blobOf } from './api.js';

const PAGE = 60;
let images = [];          // the newest first
let more = true, loading = null, search = '';
let focused = 0;          // of the thumbnails, the one that Tab reaches
let viewed = null;        // the id in the viewer
let handlers = {};        // what main.js does with a picture: {settings, again, vary, ...}

export const latestImage = () => search ? null : images[0] || null;
const indexOf = id => images.findIndex(image => image.id === id);
const named = image => `${image.prompt || 'Picture without a prompt'}, ${image.id}`;

// ---- thumbnails ----

function thumbOf(image) {
  const node = el('div', { role: 'option', class: 'thumb', tabIndex: -1, 'aria-label': named(image),
    'aria-selected': 'false', title: image.prompt || '' }, el('img', { alt: '', loading: 'lazy' }));
  node.dataset.id = image.id;
  node.addEventListener('click', () => openViewer(image.id));
  node.addEventListener('focus', () => focusAt(indexOf(image.id), false));
  setImage(node.firstChild, image.thumb || `${image.url}/thumb`);
  return node;
}

function focusAt(index, move = true) {
  const nodes = $('thumbs').children;
  if (!nodes.length) return;
  if (nodes[focused]) nodes[focused].tabIndex = -1;
  focused = Math.min(Math.max(0, index), nodes.length - 1);
  for (const node of nodes) node.setAttribute('aria-selected', node === nodes[focused]);
  nodes[focused].tabIndex = 0;
  if (move) nodes[focused].focus();
}

function drawRest() {
  show('gallery-empty', !images.length);
  setText($('gallery-empty'), search ? `No picture's prompt has “${search}”.`
    : 'Every picture that you make is kept here.');
  show('older', more && images.length > 0);
  show('filter', images.length > 0 || search !== '');
  if (!document.activeElement.classList.contains('thumb')) focusAt(focused, false);
}

/** Loads the next older pictures, or with `anew` the newest instead of all. */
async function loadOlder(anew = false) {
  if (loading && !anew) return loading;
  const query = search;
  const path = `/images?limit=${PAGE}` + (query ? `&q=${encodeURIComponent(query)}` : '')
    + (anew || !images.length ? '' : `&before=${encodeURIComponent(images.at(-1).id)}`);
  const work = call('GET', path).then(found => {
    if (query !== search) return;
    if (anew) {
      images = [];
      $('thumbs').replaceChildren();
    }
    const fresh = found.images.filter(image => indexOf(image.id) < 0);
    images.push(...fresh);
    $('thumbs').append(...fresh.map(thumbOf));
    more = found.more;
    drawRest();
  }).finally(() => { if (loading === work) loading = null; });
  loading = work;
  return work;
}

/** Puts new pictures at the front: one that was just made, or all that were made meanwhile. */
function addImage(image) {
  if (indexOf(image.id) >= 0) return;
  if (search && !(image.prompt || '').toLowerCase().includes(search.toLowerCase())) return;
  images.unshift(image);
  $('thumbs').prepend(thumbOf(image));
  if (focused > 0) focused++;
  drawRest();
}

async function catchUp() {
  if (!images.length) return loadOlder(true);
  const found = await call('GET', `/images?limit=${PAGE}${search ? `&q=${encodeURIComponent(search)}` : ''}`);
  const fresh = found.images.filter(image => indexOf(image.id) < 0);
  if (fresh.length === found.images.length && fresh.length) return loadOlder(true);
  fresh.reverse().forEach(addImage);
}

function dropImage(id) {
  const index = indexOf(id);
  if (index < 0) return;
  const had = document.activeElement === $('thumbs').children[index];
  images.splice(index, 1);
  $('thumbs').children[index].remove();
  focused = Math.min(focused, images.length - 1);
  drawRest();
  if (had && images.length) focusAt(index);
}

// ---- what can be done ----

export const metaOf = id => call('GET', `/images/${encodeURIComponent(id)}/meta`);

async function download(image) {
  const link = el('a', { href: URL.createObjectURL(await blobOf(image.url)), download: `${image.id}.png` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export async function deleteImage(id) {
  if (!await ask('Delete this picture? Its file is removed.', 'Delete')) return;
  await call('DELETE', `/images/${encodeURIComponent(id)}`);
  const next = images[indexOf(id) + 1] || images[indexOf(id) - 1];
  if (viewed === id) next ? openViewer(next.id) : $('viewer').close();
  dropImage(id);
  handlers.deleted(id);
  announce('Deleted');
}

const ACTIONS = [
  ['again', 'Once more', 'The same settings, another seed (m)'],
  ['vary', 'Vary', 'A new picture that begins from this one (v)'],
  ['upscale', 'Upscale', 'The same picture, larger (u)'],
  ['settings', 'Take its settings', 'Into the fields on the left (t)'],
  ['input', 'Start from it', 'As the start picture (i)'],
];
const KEYS = { m: 'again', v: 'vary', u: 'upscale', t: 'settings', i: 'input' };

const knownImage = id => images[indexOf(id)];

/** The buttons of a picture. */
export function actionsOf(image) {
  const button = (label, title, work) =>
    el('button', { type: 'button', title, onclick: doing(work) }, label);
  return [...ACTIONS.map(([name, label, title]) =>
    button(label, title, () => actOn(name, image.id))),
  button('Download', 'Save the file', () => download(image)),
  button('Delete', 'Remove the file (Delete)', () => deleteImage(image.id))];
}

async function actOn(name, id) {
  const meta = await metaOf(id);
  const url = knownImage(id)?.url || `/ebb/v1/images/${id}`;
  await handlers[name]({ ...meta, id, url });
  if (name !== 'again' && name !== 'vary' && name !== 'upscale') $('viewer').close();
}

/** Does what a key means for a picture; false if it means nothing. */
export function imageKey(event, id) {
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  if (event.key === 'Delete') deleteImage(id).catch(complain);
  else if (KEYS[event.key]) actOn(KEYS[event.key], id).catch(complain);
  else return false;
  event.preventDefault();
  return true;
}

// ---- the viewer ----

const shownFacts = settings => Object.entries(settings).filter(([name, value]) =>
  !['prompt', 'negative', 'init', 'mask'].includes(name) && value !== '');

export async function openViewer(id) {
  viewed = id;
  const image = knownImage(id) || { id, url: `/ebb/v1/images/${id}` };
  const at = indexOf(id);
  setImage($('view-image'), image.url);
  $('view-image').alt = image.prompt || 'Picture';
  setText($('view-prompt'), image.prompt || '');
  $('view-facts').replaceChildren();
  $('view-actions').replaceChildren(...actionsOf(image));
  $('view-prev').disabled = at <= 0;
  $('view-next').disabled = at < 0 || at === images.length - 1 && !more;
  if (!$('viewer').open) {
    $('viewer').showModal();
    $('view-close').focus();
  }
  if (at > images.length - 5 && more) loadOlder().catch(complain);
  const meta = await metaOf(id);
  if (viewed !== id) return;
  const facts = shownFacts(meta.settings || {});
  if (meta.settings?.negative) facts.unshift(['leave out', meta.settings.negative]);
  facts.unshift(['pixels', `${meta.width} × ${meta.height}`]);
  $('view-facts').replaceChildren(...facts.flatMap(([name, value]) =>
    [el('dt', {}, name.replaceAll('_', ' ')), el('dd', {}, String(value))]));
  if (meta.settings?.prompt) setText($('view-prompt'), meta.settings.prompt);
}

async function walk(by) {
  const at = indexOf(viewed) + by;
  if (at === images.length && more) await loadOlder();
  if (images[at]) await openViewer(images[at].id);
}

function viewerKey(event) {
  if (event.target.matches('input, textarea')) return;
  if (event.key === 'ArrowLeft') walk(-1).catch(complain);
  else if (event.key === 'ArrowRight') walk(1).catch(complain);
  else if (!imageKey(event, viewed)) return;
  event.preventDefault();
}

function galleryKey(event) {
  const nodes = [...$('thumbs').children];
  const at = nodes.indexOf(event.target);
  if (at < 0) return;
  const columns = nodes.filter(node => node.offsetTop === nodes[0].offsetTop).length;
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns,
    Home: -at, End: nodes.length - 1 - at };
  if (event.key in moves) focusAt(at + moves[event.key]);
  else if (event.key === 'Enter' || event.key === ' ') openViewer(event.target.dataset.id).catch(complain);
  else if (!imageKey(event, event.target.dataset.id)) return;
  event.preventDefault();
}

export function buildGallery(given) {
  handlers = given;
  on('older', 'click', doing(() => loadOlder()));
  new IntersectionObserver(entries => {
    if (entries[0].isIntersecting && more && !loading) loadOlder().catch(() => {});
  }, { rootMargin: '600px' }).observe($('older'));
  let timer;
  on('filter', 'input', event => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      search = event.target.value.trim();
      focused = 0;
      loadOlder(true).catch(complain);
    }, 250);
  });
  $('thumbs').addEventListener('keydown', galleryKey);
  $('viewer').addEventListener('keydown', viewerKey);
  $('viewer').addEventListener('close', () => {
    const at = indexOf(viewed);
    viewed = null;
    if (at >= 0) focusAt(at);
  });
  on('view-prev', 'click', doing(() => walk(-1)));
  on('view-next', 'click', doing(() => walk(1)));
  on('view-close', 'click', () => $('viewer').close());
  onChange((type, data) => {
    if (type === 'state') catchUp().then(handlers.loaded).catch(() => {});
    const job = known.jobs.get(data?.job);
    if (type === 'image' && job)
      addImage({ ...data, prompt: job.settings.prompt, thumb: `${data.url}/thumb` });
  });
}
