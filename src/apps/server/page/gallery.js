// The pictures of this server: thumbnails, the viewer, and what can be done with a picture.
import { $, el, button, on, show, setText, announce, doing, ask, complain } from './dom.js';
import { call, known, onChange, setImage, blobOf } from './api.js';

const PAGE = 60;
let images = [];          // the newest first
let more = true, loading = null, search = '';
let focused = 0;          // of the thumbnails, the one that Tab reaches
let viewed = null;        // the id in the viewer
let handlers = {};        // what main.js does with a picture: {settings, again, vary, ...}

export const latestImage = () => search ? null : images[0];
const indexOf = id => images.findIndex(image => image.id === id);
const pathOf = id => `/images/${encodeURIComponent(id)}`;
const imageOf = id => images[indexOf(id)] || { id, url: `/ebb/v1${pathOf(id)}` };
const thumbs = () => $('thumbs').children;

// ---- thumbnails ----

function thumbOf({ id, url, thumb = `${url}/thumb`, prompt }) {
  const img = el('img', { alt: '', loading: 'lazy' });
  setImage(img, thumb).catch(() => {});
  return el('div', { role: 'option', className: 'thumb', tabIndex: -1, title: prompt || '',
    ariaLabel: `${prompt || 'Picture without a prompt'}, ${id}`, ariaSelected: false, id: `image-${id}`,
    onclick: doing(() => openViewer(id)), onfocus: () => focusAt(indexOf(id), false) }, img);
}

function focusAt(index, move = true) {
  for (const old of $('thumbs').querySelectorAll('[tabindex="0"]'))
    Object.assign(old, { tabIndex: -1, ariaSelected: false });
  focused = Math.max(0, Math.min(index, images.length - 1));
  const node = thumbs()[focused];
  if (!node) return;
  Object.assign(node, { tabIndex: 0, ariaSelected: true });
  if (move) node.focus();
}

function drawRest() {
  show('gallery-empty', !images.length);
  setText($('gallery-empty'), search ? `No picture's prompt has “${search}”.`
    : 'Every picture that you make is kept here.');
  show('older', more && images.length);
  show('filter', images.length || search);
  focusAt(focused, false);
}

const list = query => call('GET', `/images?limit=${PAGE}&q=${encodeURIComponent(search)}${query}`);

/** With `anew`: the newest, instead of all. */
async function loadOlder(anew = false) {
  if (loading && !anew) return loading;
  const query = search;
  const work = list(anew || !images.length ? '' : `&before=${encodeURIComponent(images.at(-1).id)}`)
    .then(found => {
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

function addImage(image) {
  if (indexOf(image.id) >= 0 || !image.prompt.toLowerCase().includes(search.toLowerCase())) return;
  images.unshift(image);
  $('thumbs').prepend(thumbOf(image));
  if (focused) focused++;
  drawRest();
}

async function catchUp() {
  const found = (await list('')).images, fresh = found.filter(image => indexOf(image.id) < 0);
  if (fresh.length === found.length) await loadOlder(true);
  else fresh.reverse().forEach(addImage);
}

// ---- what can be done ----

async function download({ id, url }) {
  const blob = await blobOf(url), link = el('a', { href: URL.createObjectURL(blob) });
  link.download = `${id}.${blob.type.split('/')[1]}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function deleteImage({ id }) {
  if (!await ask('Delete this picture? Its file is removed.', 'Delete')) return;
  await call('DELETE', pathOf(id));
  const index = indexOf(id), had = document.activeElement === thumbs()[index];
  if (index >= 0) {
    images.splice(index, 1);
    thumbs()[index].remove();
  }
  drawRest();
  if (viewed === id) images.length ? await openViewer(images[Math.min(index, images.length - 1)].id)
    : $('viewer').close();
  else if (had) focusAt(index);
  handlers.deleted(id);
  announce('Deleted');
}

// Name, label, key, meaning. Those with a handler get the picture's settings with it.
const ACTIONS = [
  ['again', 'Once more', 'm', 'The same settings, another seed'],
  ['vary', 'Vary', 'v', 'A new picture that begins from this one'],
  ['upscale', 'Upscale', 'u', 'The same picture, larger'],
  ['settings', 'Take its settings', 't', 'Into the fields'],
  ['input', 'Start from it', 'i', 'As the start picture'],
  [download, 'Download', '', 'Save the file'],
  [deleteImage, 'Delete', 'Delete', 'Remove the file'],
];

async function actOn(name, image) {
  if (name.call) return name(image);
  await handlers[name]({ ...image, ...await call('GET', `${pathOf(image.id)}/meta`) });
  if (['settings', 'input'].includes(name)) $('viewer').close();
}

export const actionsOf = image => ACTIONS.filter(([name]) => handlers.offers(name)).map(
  ([name, label, key, title]) => button(label, doing(() => actOn(name, image)),
    { title: key ? `${title} (${key})` : title }));

/** Does what a key means for a picture; false if it means nothing. */
export function imageKey(event, id) {
  const found = ACTIONS.find(action => action[2] === event.key && handlers.offers(action[0]));
  if (!found || event.ctrlKey || event.metaKey || event.altKey) return false;
  event.preventDefault();
  actOn(found[0], imageOf(id)).catch(complain);
  return true;
}

// ---- the viewer ----

export async function openViewer(id) {
  const image = imageOf(id), at = indexOf(id);
  viewed = id;
  setImage($('view-image'), image.url).catch(complain);
  $('view-image').alt = image.prompt || 'Picture';
  setText($('view-prompt'), image.prompt || '');
  $('view-actions').replaceChildren(...actionsOf(image));
  $('view-prev').disabled = at <= 0;
  $('view-next').disabled = at < 0 || at === images.length - 1 && !more;
  if (!$('viewer').open) {
    $('view-facts').replaceChildren();
    $('viewer').showModal();
    $('view-close').focus();
  }
  const { settings, width, height } = await call('GET', `${pathOf(id)}/meta`);
  if (viewed !== id) return;
  const facts = Object.entries({ pixels: `${width} × ${height}`, ...settings }).filter(
    ([name, value]) => !['prompt', 'init', 'mask'].includes(name) && value !== '');
  $('view-facts').replaceChildren(...facts.flatMap(([name, value]) =>
    [el('dt', {}, name.replaceAll('_', ' ')), el('dd', {}, String(value))]));
  setText($('view-prompt'), settings.prompt || '');
}

async function walk(by) {
  const at = indexOf(viewed) + by;
  if (at >= images.length && more) await loadOlder();
  if (images[at]) await openViewer(images[at].id);
}

function viewerKey(event) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by) walk(by).catch(complain);
  else imageKey(event, viewed);
}

function galleryKey(event) {
  const nodes = [...thumbs()], at = nodes.indexOf(event.target);
  const columns = nodes.filter(node => node.offsetTop === nodes[0].offsetTop).length;
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns,
    Home: -at, End: nodes.length };
  if (event.key in moves) focusAt(at + moves[event.key]);
  else if (event.key === 'Enter' || event.key === ' ') event.target.click();
  else return imageKey(event, images[at].id);
  event.preventDefault();
}

export function buildGallery(given) {
  handlers = given;
  on('older', 'click', doing(() => loadOlder()));
  new IntersectionObserver(([{ isIntersecting }]) => {
    if (isIntersecting && more) loadOlder().catch(() => {});
  }, { rootMargin: '600px' }).observe($('older'));
  let timer;
  on('filter', 'input', event => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      search = event.target.value.trim();
      loadOlder(true).catch(complain);
    }, 250);
  });
  on('thumbs', 'keydown', galleryKey);
  on('viewer', 'keydown', viewerKey);
  on('viewer', 'close', () => {
    const at = indexOf(viewed);
    viewed = null;
    if (at >= 0) focusAt(at);
  });
  on('view-prev', 'click', doing(() => walk(-1)));
  on('view-next', 'click', doing(() => walk(1)));
  on('view-close', 'click', () => $('viewer').close());
  onChange((type, data) => {
    if (type === 'state') catchUp().then(handlers.loaded).catch(() => {});
    const job = known.jobs.get(data.job);
    if (type === 'image' && job) addImage({ ...data, prompt: job.settings.prompt || '' });
  });
}
