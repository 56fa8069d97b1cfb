// The current picture, the list of jobs, the gallery and its viewer.
import { $, el, button, on, show, setText, announce, complain, doing, ask, perFrame } from './dom.js';
import { call, known, onChange, adopt, forget, setImage, dropBlob, blobOf } from './api.js';

let lastJob = null;  // its last picture is shown where none is made

const having = status => [...known.jobs.values()].filter(job => job.status === status);
const running = () => having('generating')[0];
const countOf = job => job.progress?.images ?? job.settings.n ?? 1;
const titleOf = job => job.settings.prompt || '(no prompt)';

function factsOf(job) {
  const { settings } = job, n = countOf(job);
  return [n > 1 && `${n} pictures`, settings.size?.replace('x', ' × '),
    settings.steps && `${settings.steps} steps`, settings.init && 'from a picture',
    settings.upscale && 'upscaled'].filter(Boolean);
}

export async function queueJob(settings) {
  adopt(await call('POST', '/jobs', settings));
  const before = having('queued').length;
  announce(before ? `Added to the queue: ${before} waiting` : 'Started');
}

const timeText = s => s < 90 ? `${Math.ceil(s)} s left` : `${Math.round(s / 60)} min left`;

function progressText({ progress: p }) {
  if (!p?.steps) return known.model?.state === 'loading' ? 'Loading the model…' : 'Preparing…';
  const text = p.images > 1 ? `Picture ${Math.min(p.image + 1, p.images)} of ${p.images}, step` : 'Step';
  return `${text} ${p.step} of ${p.steps}${p.eta_s == null ? '' : `, ${timeText(p.eta_s)}`}`;
}

function drawProgress(job) {
  const percent = Math.round((job.progress?.share || 0) * 100), bar = $('progress');
  bar.ariaValueNow = percent;
  bar.firstChild.style.width = `${percent}%`;
  bar.classList.toggle('unknown', !job.progress?.steps);
  bar.ariaValueText = progressText(job);
  setText($('progress-text'), progressText(job));
  show('skip', countOf(job) > 1);
  document.title = `${percent} % · ebb`;
}

let fetching = false;

async function drawPreview(job) {
  const img = $('current-image'), id = job.progress?.preview_id;
  const url = `/ebb/v1/jobs/${job.id}/preview?n=${id}`;
  if (img.dataset.job !== job.id) {
    img.hidden = true;
    img.dataset.job = job.id;
  }
  if (!id || fetching || img.dataset.url === url) return;
  fetching = true;
  const next = new Image();
  try {
    await setImage(next, url);
    await next.decode();
    dropBlob(img);
    if (running()?.id === job.id) Object.assign(img, { src: next.src, hidden: false }).dataset.url = url;
  } catch {
  } finally {
    fetching = false;
  }
}

function drawFrame(job, image) {
  const img = $('current-image'), frame = $('current-open'), [w, h] = job?.settings.size?.split('x') || [];
  frame.style.aspectRatio = job ? `${w} / ${h || w}` : '';
  frame.className = job ? 'frame busy' : 'frame';
  frame.disabled = !!job;
  frame.ariaLabel = job ? 'Preview' : `Open: ${image.prompt || 'picture'}`;
  if (job) return drawPreview(job);
  img.dataset.job = '';
  img.hidden = false;
  setImage(img, image.url).catch(complain);
  frame.onclick = doing(() => openViewer(image.id));
}

function drawStage() {
  const job = running(), last = known.jobs.get(lastJob);
  const image = last?.images.at(-1) || latestImage();
  show('empty', !job && !image);
  show('current', job || image);
  show('running', job);
  show('current-actions', !job && image);
  if (job) drawProgress(job);
  else document.title = 'ebb';
  if (job || image) drawFrame(job, image);
  const node = $('current-actions');
  if (image && node.dataset.id !== image.id) {
    node.dataset.id = image.id;
    node.replaceChildren(...actionsOf(image));
  }
  const shown = job || last?.images.length && last;
  setText($('current-facts'), shown ? [...shown.warnings || [], titleOf(shown)].join('\n') : image?.prompt || '');
}

const currentImage = () => !$('current-actions').hidden && $('current-actions').dataset.id;

const remove = job => call('DELETE', `/jobs/${job.id}`);
const move = (job, by) => call('PATCH', `/jobs/${job.id}`, { position: having('queued').indexOf(job) + by });

function rowOf({ id }) {
  const tool = (text, work) => button(text, doing(() => work(known.jobs.get(id))));
  return el('li', { id: `job-${id}` }, el('p', { className: 'title' }), el('p', { className: 'note' }),
    el('p', { className: 'error' }), el('div', { className: 'tools' },
      tool('↑', job => move(job, -1)), tool('↓', job => move(job, 1)),
      tool('Try again', async job => {
        await queueJob(job.settings);
        forget(id);
      }),
      tool('✕', job => job.status === 'failed' ? forget(id) : remove(job))));
}

const STATES = { generating: ['Now', 'Stop'], failed: ['Failed', 'Dismiss'], queued: ['', 'Remove'] };

function drawRow(row, job, place, last) {
  const [title, note, error, tools] = row.children, [up, down, again, drop] = tools.children;
  const [state, action] = STATES[job.status], waits = job.status === 'queued';
  setText(title, titleOf(job));
  setText(note, [state || (place ? `Number ${place + 1}` : 'Next'), ...factsOf(job)].join(' · '));
  setText(error, job.error?.message || '');
  row.className = job.status;
  up.hidden = down.hidden = !waits;
  up.disabled = !place;
  down.disabled = last;
  again.hidden = job.status !== 'failed' || !!job.settings.init;
  [[up, 'Earlier'], [down, 'Later'], [drop, action]].forEach(([node, name]) => {
    node.title = name;
    node.ariaLabel = `${name}: ${titleOf(job).slice(0, 60)}`;
  });
}

function drawQueue() {
  const list = $('jobs'), active = document.activeElement, queued = having('queued');
  const jobs = [...having('failed'), ...having('generating'), ...queued];
  const rows = jobs.map(job => $(`job-${job.id}`) || rowOf(job));
  for (const row of [...list.children]) if (!rows.includes(row)) row.remove();
  rows.forEach((row, i) => {
    if (list.children[i] !== row) list.insertBefore(row, list.children[i]);
    const place = queued.indexOf(jobs[i]);
    drawRow(row, jobs[i], place, place === queued.length - 1);
  });
  if (active.isConnected && active !== document.activeElement) active.focus();
  if (active.disabled && list.contains(active)) active.parentNode.querySelector(':enabled').focus();
  show('queue-empty', !jobs.length);
  $('queue').classList.toggle('none', !jobs.length);
  show('queue-clear', queued.length > 1);
  show('queue-stop', queued.length && running());
  setText($('queue-title'), queued.length ? `Queue, ${queued.length} waiting` : 'Queue');
  setText($('generate'), jobs.some(job => job.status !== 'failed') ? 'Add to the queue' : 'Generate');
}

export const draw = perFrame(() => {
  drawStage();
  drawQueue();
});

export const stopCurrent = async () => running() && remove(running());

function heard(type, data) {
  const job = known.jobs.get(data.job);
  if (type === 'started') {
    lastJob = data.job;
    if (innerWidth < 760) $('stage').scrollIntoView();
  } else if (type === 'state') catchUp().then(draw, () => {});
  else if (type === 'image' && job) {
    addImage({ ...data, prompt: job.settings.prompt || '' });
    announce(`Picture ${data.index + 1} is ready`);
  } else if (type === 'failed') complain(job.error);
  else if (type === 'removed') announce('Removed');
  else if (type === 'deleted') data.ids.forEach(doing(drop));
  draw();
}

export function buildPictures(given) {
  handlers = given;
  buildGallery();
  onChange(heard);
  on('stop', 'click', doing(stopCurrent));
  on('skip', 'click', doing(() => call('POST', `/jobs/${running().id}/skip`, {})));
  on('queue-stop', 'click', doing(async () =>
    await ask('Stop all jobs, also those that wait? Finished pictures stay.', 'Stop all')
      && call('DELETE', '/jobs')));
  on('queue-clear', 'click', doing(async () => {
    if (!await ask('Remove all jobs that wait? The running one goes on.', 'Remove them')) return;
    for (const job of having('queued').reverse()) await remove(job);
  }));
}

const PAGE = 60;
let images = [];  // the newest first
let more = true, loading = null, search = '';
let focused = 0;  // the one that Tab reaches
let viewed = null;  // in the viewer
let handlers = {};  // of ACTIONS, by name

const latestImage = () => search ? null : images[0];
const indexOf = id => images.findIndex(image => image.id === id);
const pathOf = id => `/images/${encodeURIComponent(id)}`;
const imageOf = id => images[indexOf(id)] || { id, url: `/ebb/v1${pathOf(id)}` };
const thumbs = () => $('thumbs').children;

function thumbOf({ id, url, thumb = `${url}/thumb`, prompt }) {
  const img = el('img', { alt: '', loading: 'lazy' });
  setImage(img, thumb).catch(() => {});
  return el('div', { role: 'option', className: 'thumb', tabIndex: -1, title: prompt || '',
    ariaLabel: `${prompt || 'Picture without a prompt'}, ${id.slice(0, 15)}`, ariaSelected: false, id: `image-${id}`,
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
    : 'All your pictures are kept here.');
  show('older', more && images.length);
  show('filter', images.length || search);
  focusAt(focused, false);
}

const list = query => call('GET', `/images?limit=${PAGE}&q=${encodeURIComponent(search)}${query}`);

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
  const at = images.filter(({ id }) => id > image.id).length;
  images.splice(at, 0, image);
  $('thumbs').insertBefore(thumbOf(image), thumbs()[at]);
  if (focused && at <= focused) focused++;
  drawRest();
}

async function catchUp() {
  const had = [...images], found = await list(''), fresh = found.images.filter(image => indexOf(image.id) < 0);
  if (images.length && fresh.length === found.images.length) return loadOlder(true);
  if (!images.length) more = found.more;
  fresh.forEach(addImage);
  drawRest();
  const ids = found.images.map(({ id }) => id), end = found.more ? ids.at(-1) : '';
  for (const { id } of had) if (id > end && !ids.includes(id)) drop(id);
}

async function download({ id, url }) {
  const blob = await blobOf(url), link = el('a', { href: URL.createObjectURL(blob) });
  link.download = `${id}.${blob.type.split('/')[1]}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function drop(id) {
  const index = indexOf(id), had = document.activeElement === thumbs()[index];
  for (const job of known.jobs.values()) job.images = job.images.filter(made => made.id !== id);
  if (index >= 0) {
    images.splice(index, 1);
    thumbs()[index].remove();
    if (index < focused) focused--;
    drawRest();
    announce('Deleted');
  }
  if (viewed === id) images.length ? await openViewer((images[index] || images.at(-1)).id)
    : $('viewer').close();
  else if (had) focusAt(index);
}

async function deleteImage({ id }) {
  if (!await ask('Delete this picture? Its file is removed.', 'Delete')) return;
  await call('DELETE', pathOf(id));
  await drop(id);
  draw();
}

// Name of a handler or a function, label, key, meaning.
export const ACTIONS = [
  ['again', 'Once more', 'm', 'the same settings, another seed'],
  ['vary', 'Vary', 'v', 'a picture that begins from it'],
  ['hires', 'Second pass', 'h', 'the same, made finer at twice the size'],
  ['upscale', 'Upscale', 'u', 'make it larger'],
  ['settings', 'Take its settings', 't', 'put them into the fields'],
  ['input', 'Start from it', 'i', 'take it as the start picture'],
  [download, 'Download', '', 'save its file'],
  [deleteImage, 'Delete', 'Delete', 'remove its file'],
];

async function actOn(name, image) {
  if (name.call) return name(image);
  await handlers[name]({ ...image, ...await call('GET', `${pathOf(image.id)}/meta`) });
  if (['settings', 'input'].includes(name)) $('viewer').close();
}

const actionsOf = image => ACTIONS.map(([name, label, key, title]) =>
  button(label, doing(() => actOn(name, image)),
    { title: key ? `${title} (${key})` : title }));

function imageKey(event, id = currentImage()) {
  const found = ACTIONS.find(action => action[2] === event.key);
  if (!found || !id || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  actOn(found[0], imageOf(id)).catch(complain);
}

async function openViewer(id) {
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
    ([name, value]) => !['prompt', 'init', 'mask', 'n'].includes(name) && value !== '');
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
  else if (event.key === ' ' || event.key === 'Enter' && !(event.ctrlKey || event.metaKey)) event.target.click();
  else return imageKey(event, images[at].id);
  event.preventDefault();
}

function buildGallery() {
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
  on('current', 'keydown', event => imageKey(event));
  on('thumbs', 'keydown', galleryKey);
  on('viewer', 'keydown', viewerKey);
  on('viewer', 'close', () => {
    const at = indexOf(viewed);
    viewed = null;
    if (at >= 0) focusAt(at);
  });
  on('view-prev', 'click', doing(() => walk(-1)));
  on('view-next', 'click', doing(() => walk(1)));
}
