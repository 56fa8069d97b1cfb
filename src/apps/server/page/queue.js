// The current picture with its progress, and the list of jobs.
import { $, el, on, show, setText, announce, toast, doing, ask, perFrame, secondsText } from './dom.js';
import { call, known, onChange, jobsInOrder, isOver, adopt, forget, setImage } from './api.js';
import { actionsOf, latestImage, openViewer } from './gallery.js';

let chosen = null;        // {job, index}: a picture of the current job that the user looks at
let lastJob = null;       // the id of the one that is shown when none runs

const runningJob = () => jobsInOrder().find(job => job.status === 'generating');
const waiting = () => jobsInOrder().filter(job => job.status === 'queued');
const failed = () => jobsInOrder().filter(job => job.status === 'failed');
const countOf = job => job.progress?.images ?? job.settings?.n ?? 1;

const sizeText = settings => settings.size && settings.size !== 'auto'
  ? settings.size.replace('x', ' × ') : '';

function factsOf(job) {
  const { settings } = job, n = countOf(job);
  return [n > 1 && `${n} pictures`, sizeText(settings), settings.steps && `${settings.steps} steps`,
    settings.init && 'from a picture', settings.hires && 'second pass'].filter(Boolean).join(', ');
}

/** Queues a job. Throws ApiError. */
export async function queueJob(settings) {
  const job = await call('POST', '/jobs', settings);
  adopt(job);
  const before = jobsInOrder().filter(other => !isOver(other)).length - 1;
  announce(before ? `Added to the queue, behind ${before}` : 'Started');
  return job;
}

// ---- the current picture ----

function progressText(job) {
  const { progress } = job;
  if (!progress?.steps) return known.model?.state === 'loading' ? 'Loading the model…' : 'Preparing…';
  const parts = [];
  if (progress.images > 1) parts.push(`Picture ${Math.min(progress.image + 1, progress.images)} of ${progress.images}`);
  parts.push(`step ${progress.step} of ${progress.steps}`);
  if (progress.eta_s != null) parts.push(secondsText(progress.eta_s));
  const text = parts.join(', ');
  return text[0].toUpperCase() + text.slice(1);
}

function drawProgress(job) {
  const percent = Math.round((job.progress?.share || 0) * 100);
  const bar = $('progress');
  bar.setAttribute('aria-valuenow', percent);
  bar.setAttribute('aria-valuetext', progressText(job));
  bar.firstElementChild.style.width = `${percent}%`;
  bar.classList.toggle('unknown', !job.progress?.steps);
  setText($('progress-text'), progressText(job));
  show('skip', countOf(job) > 1);
  document.title = `${percent} % · ebb`;
}

/** The pictures of a job as small buttons, where it has several. */
function drawStrip(job, shown) {
  const strip = $('current-strip');
  show('current-strip', job.images.length > 1 || job.images.length && job.status === 'generating');
  job.images.forEach((image, i) => {
    const button = strip.children[i] || strip.appendChild(el('button', { type: 'button' },
      el('img', { alt: '' })));
    setImage(button.firstChild, `${image.url}/thumb`);
    button.setAttribute('aria-label', `Picture ${image.index + 1}`);
    button.setAttribute('aria-pressed', image === shown);
    button.onclick = () => {
      chosen = chosen?.index === i && job.status === 'generating' ? null : { job: job.id, index: i };
      draw();
    };
  });
  while (strip.children.length > job.images.length) strip.lastChild.remove();
}

let previewed = '';

/** Fetches a preview if none is on its way, so that a slow client skips some. */
async function drawPreview(job) {
  const img = $('current-image'), id = job.progress?.preview_id;
  const url = `/ebb/v1/jobs/${job.id}/preview?n=${id}`;
  if (!id || previewed === url || previewed === 'loading') return;
  previewed = 'loading';
  const next = new Image();
  await setImage(next, url);
  try {
    await next.decode();
    if (runningJob()?.id === job.id && !chosen) {
      img.dataset.url = url;
      img.src = next.src;
      img.hidden = false;
    }
  } catch {}
  previewed = url;
  draw();
}

function drawFrame(job, image) {
  const img = $('current-image'), frame = $('current-open');
  const [w, h] = (job?.settings.size || '').split('x').map(Number);
  if (!image && w && h) frame.style.aspectRatio = `${w} / ${h}`;
  else frame.style.aspectRatio = image ? '' : '1';
  frame.classList.toggle('busy', !image);
  frame.disabled = !image;
  if (image) {
    setImage(img, image.url);
    img.hidden = false;
    frame.onclick = () => openViewer(image.id);
  } else if (img.dataset.url !== undefined && !img.dataset.url.includes(`/jobs/${job.id}/`)) {
    delete img.dataset.url;
    img.hidden = true;
  }
  const prompt = job?.settings.prompt || image?.prompt || '';
  img.alt = image ? prompt || 'Picture without a prompt' : 'Preview';
  frame.setAttribute('aria-label', image ? `Open: ${prompt || 'picture'}` : 'Preview of the picture');
  if (!image) drawPreview(job);
}

function drawStage() {
  const running = runningJob();
  if (chosen && !known.jobs.has(chosen.job)) chosen = null;
  if (running && chosen && chosen.job !== running.id) chosen = null;
  const job = running || known.jobs.get(lastJob);
  const images = job?.images || [];
  const image = chosen ? images[chosen.index] : running ? null : images.at(-1) || latestImage();
  show('empty', !running && !image);
  show('current', running || image);
  show('running', !!running);
  if (!running) document.title = 'ebb';
  if (!running && !image) return;
  drawFrame(running || (images.length ? job : null), image);
  if (job?.images) drawStrip(job, image);
  else show('current-strip', false);
  if (running) drawProgress(running);
  show('current-actions', !!image);
  const node = $('current-actions');
  if (image && node.dataset.id !== image.id) {
    node.dataset.id = image.id;
    node.replaceChildren(...actionsOf(image));
  }
  const facts = running ? running.settings.prompt : image?.prompt ?? job?.settings.prompt;
  setText($('current-facts'), [facts, ...(job?.warnings || [])].filter(Boolean).join('\n'));
}

// ---- the list ----

const move = (job, by) => call('PATCH', `/jobs/${job.id}`, { position: waiting().indexOf(job) + by });
const remove = job => call('DELETE', `/jobs/${job.id}`);

function rowOf(job) {
  const button = (label, name, work) => el('button', { type: 'button', class: 'small', 'aria-label': name,
    title: name, onclick: doing(() => work(known.jobs.get(job.id))) }, label);
  const row = el('li', { id: `job-${job.id}` },
    el('p', { class: 'title' }), el('p', { class: 'note' }), el('p', { class: 'error', hidden: true }),
    el('div', { class: 'tools' },
      button('↑', 'Earlier', j => move(j, -1)), button('↓', 'Later', j => move(j, 1)),
      button('Try again', 'Try again', async j => {
        forget(j.id);
        await queueJob(j.settings);
      }),
      button('✕', 'Remove', j => isOver(j) ? forget(j.id) : remove(j))));
  row.addEventListener('dragstart', event => event.dataTransfer.setData('application/x-ebb-job', job.id));
  row.addEventListener('dragover', event => {
    if (event.dataTransfer.types.includes('application/x-ebb-job')) event.preventDefault();
  });
  row.addEventListener('drop', doing(async event => {
    const id = event.dataTransfer.getData('application/x-ebb-job');
    if (!id || id === job.id) return;
    event.preventDefault();
    await call('PATCH', `/jobs/${id}`, { position: waiting().findIndex(other => other.id === job.id) });
  }));
  return row;
}

function drawRow(row, job, place, last) {
  const [title, note, error, tools] = row.children;
  const [up, down, again, drop] = tools.children;
  const text = job.settings.prompt || '(no prompt)';
  setText(title, text);
  const state = { generating: 'Now', queued: place === 0 ? 'Next' : `Number ${place + 1}`, failed: 'Failed' };
  setText(note, [state[job.status], factsOf(job)].filter(Boolean).join(' · '));
  row.className = job.status;
  row.draggable = job.status === 'queued';
  up.hidden = down.hidden = job.status !== 'queued';
  up.disabled = place === 0;
  down.disabled = last;
  again.hidden = error.hidden = job.status !== 'failed';
  setText(error, job.error?.message || '');
  up.setAttribute('aria-label', `Earlier: ${text.slice(0, 60)}`);
  down.setAttribute('aria-label', `Later: ${text.slice(0, 60)}`);
  const action = job.status === 'generating' ? 'Stop' : job.status === 'failed' ? 'Dismiss' : 'Remove';
  drop.setAttribute('aria-label', `${action}: ${text.slice(0, 60)}`);
}

function drawQueue() {
  const list = $('jobs'), active = document.activeElement;
  const queued = waiting();
  const jobs = [...failed(), ...jobsInOrder().filter(job => job.status === 'generating'), ...queued];
  const rows = jobs.map(job => $(`job-${job.id}`) || rowOf(job));
  for (const row of [...list.children]) if (!rows.includes(row)) row.remove();
  rows.forEach((row, i) => {
    if (list.children[i] !== row) list.insertBefore(row, list.children[i] || null);
    const place = queued.indexOf(jobs[i]);
    drawRow(row, jobs[i], place, place === queued.length - 1);
  });
  if (active !== document.activeElement && active?.isConnected) {
    active.focus();
    if (active.disabled) active.parentNode.querySelector('button:enabled:not([hidden])')?.focus();
  }
  show('queue-empty', !jobs.length);
  $('queue').classList.toggle('none', !jobs.length);
  show('queue-clear', queued.length > 1);
  show('queue-stop', queued.length > 0 && !!runningJob());
  setText($('queue-title'), queued.length ? `Queue, ${queued.length} waiting` : 'Queue');
  setText($('generate'), runningJob() || queued.length ? 'Add to the queue' : 'Generate');
}

export const draw = perFrame(() => {
  drawStage();
  drawQueue();
});

export const stopCurrent = async () => {
  const job = runningJob();
  if (job) await remove(job);
  return !!job;
};

export function currentImage() {
  const node = $('current-actions');
  return node.hidden ? null : node.dataset.id;
}

function heard(type, data) {
  const job = known.jobs.get(data?.job);
  if (type === 'started') {
    chosen = null;
    lastJob = data.job;
    if (innerWidth < 760) $('stage').scrollIntoView({ block: 'nearest' });
  } else if (type === 'image' && job) {
    const n = countOf(job);
    announce(n > 1 ? `Picture ${data.index + 1} of ${n} is ready` : 'The picture is ready');
  } else if (type === 'failed' && job) {
    toast(job.error?.message || 'The job failed.', { error: true });
  } else if (type === 'removed' && job && !job.images?.length) {
    forget(job.id);
  } else if (type === 'removed') announce('Removed');
  draw();
}

export function buildQueue() {
  onChange(heard);
  on('stop', 'click', doing(stopCurrent));
  on('skip', 'click', doing(() => call('POST', `/jobs/${runningJob().id}/skip`, {})));
  on('queue-stop', 'click', doing(async () => {
    const n = waiting().length;
    if (await ask(`Stop the running job and remove ${n} that ${n > 1 ? 'wait' : 'waits'}? Finished pictures stay.`,
      'Stop all')) await call('DELETE', '/jobs');
  }));
  on('queue-clear', 'click', doing(async () => {
    const jobs = waiting();
    if (!await ask(`Remove the ${jobs.length} jobs that wait? The running one goes on.`, 'Remove them')) return;
    for (const job of jobs.reverse()) await remove(job);
  }));
}
