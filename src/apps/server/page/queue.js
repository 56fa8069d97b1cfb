// The current picture with its progress, and the list of jobs.
import { $, el, button, on, show, setText, announce, complain, doing, ask, perFrame } from './dom.js';
import { call, known, onChange, adopt, forget, setImage } from './api.js';
import { actionsOf, latestImage, openViewer } from './gallery.js';

let lastJob = null;       // its last picture is shown where none is made

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

// ---- the current picture ----

const timeText = s => s < 1 ? 'less than a second left'
  : s < 90 ? `${Math.round(s)} s left` : `${Math.round(s / 60)} min left`;

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

let loading = false;

/** Fetches a preview if none is on its way, so that a slow client skips some. */
async function drawPreview(job) {
  const img = $('current-image'), id = job.progress?.preview_id;
  const url = `/ebb/v1/jobs/${job.id}/preview?n=${id}`;
  if (img.dataset.job !== job.id) {
    img.hidden = true;
    img.dataset.job = job.id;
  }
  if (!id || loading || img.dataset.url === url) return;
  loading = true;
  const next = new Image();
  try {
    await setImage(next, url);
    await next.decode();
    if (running()?.id === job.id) {
      img.dataset.url = url;
      img.src = next.src;
      img.hidden = false;
    }
  } catch {
  } finally {
    loading = false;
  }
}

function drawFrame(job, image) {
  const img = $('current-image'), frame = $('current-open'), [w, h] = job?.settings.size?.split('x') || [];
  frame.style.aspectRatio = job ? `${w} / ${h || w}` : '';
  frame.className = job ? 'frame busy' : 'frame';
  frame.disabled = !!job;
  if (job) return drawPreview(job);
  img.dataset.job = '';
  img.hidden = false;
  setImage(img, image.url).catch(complain);
  frame.ariaLabel = `Open: ${image.prompt || 'picture'}`;
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
  setText($('current-facts'), shown ? [titleOf(shown), ...shown.warnings || []].join('\n') : image?.prompt || '');
}

export const currentImage = () => !$('current-actions').hidden && $('current-actions').dataset.id;

// ---- the list ----

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
  } else if (type === 'image') announce(`Picture ${data.index + 1} is ready`);
  else if (type === 'failed') complain(job.error);
  else if (type === 'removed') announce('Removed');
  draw();
}

export function buildQueue() {
  onChange(heard);
  on('stop', 'click', doing(stopCurrent));
  on('skip', 'click', doing(() => call('POST', `/jobs/${running().id}/skip`, {})));
  on('queue-stop', 'click', doing(async () =>
    await ask('Stop the running job and remove all that wait? Finished pictures stay.', 'Stop all')
      && call('DELETE', '/jobs')));
  on('queue-clear', 'click', doing(async () => {
    if (!await ask('Remove all jobs that wait? The running one goes on.', 'Remove them')) return;
    for (const job of having('queued').reverse()) await remove(job);
  }));
}
